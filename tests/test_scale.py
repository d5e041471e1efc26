"""What the program of docs/scale.md defines, without the Ray cluster that runs it."""

import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from samples import Patch, photo_bytes

import captioner

PAGE = (Path(__file__).resolve().parents[1] / "docs/scale.md").read_text(encoding="utf-8")
PROGRAM, PHOTOS, SHARDS = re.findall(r"^```python title=.*?\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def program(monkeypatch: Patch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", MagicMock())
    names: dict[str, Any] = {}
    for part in (PROGRAM, PHOTOS, SHARDS):
        exec(part, names)
    return names


@pytest.mark.parametrize("maps", [False, True])
def test_a_worker_gives_each_photo_a_row(program: dict[str, Any], maps: bool) -> None:
    contents = [photo_bytes(), b"no photo"]
    batch = pyarrow.table({"path": ["a.jpg", "b.jpg"], "bytes": contents})
    table = program["Worker"]("default", 0, maps)(batch)
    found, failed = table.to_pylist()
    caption = captioner.load(device="cpu").caption(contents[0])
    assert (found["path"], found["caption"], found["error"]) == ("a.jpg", caption.text, None)
    if maps:
        assert np.array(found["maps"]) == pytest.approx(caption.attention, abs=1e-3)
    assert failed["error"].startswith("b.jpg is not an image")
    Path("captions").mkdir()
    parquet.write_table(table, "captions/1.parquet")
    Path("captions/2.parquet").write_bytes(b"PAR1 and half of its rows")
    assert sorted(program["written"]("captions")) == ["a.jpg", "b.jpg"]
    assert Path("captions/2.parquet.cut").exists()


def test_a_sample_of_a_shard_is_its_photo_or_nothing(program: dict[str, Any]) -> None:
    sample = {"__url__": "s/0.tar", "__key__": "7", "txt": b"text"}
    assert program["photo_of_sample"](sample) == {"path": "s/0.tar/7", "bytes": b""}
    assert program["photo_of_sample"]({**sample, "png": b"photo"})["bytes"] == b"photo"
