"""The program of docs/scale.md, on a Ray cluster of this machine."""

import re
import signal
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import save_photo

import captioner

ray = pytest.importorskip("ray", reason="ray is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
PROGRAM, PHOTOS, SHARDS = re.findall(r"^```python title=.*?\n(.*?)^```", PAGE, re.M | re.S)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clusters ask nothing of the network and leave nothing behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # It would write a token to the home folder.
    terminate = signal.getsignal(signal.SIGTERM)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # Short, for names of sockets.
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield
        ray.shutdown()
    signal.signal(signal.SIGTERM, terminate)


def program() -> dict[str, Any]:
    """What the page's program defines, on a new cluster, with two workers from the start."""
    ray.shutdown()
    ray.init(num_cpus=3, include_dashboard=False)
    names: dict[str, Any] = {"__name__": "caption_many"}
    exec(PROGRAM.replace("min_size=1", "min_size=2"), names)
    return names


def rows(folder: str) -> list[dict[str, Any]]:
    """The rows of all Parquet files of a folder, by path."""
    tables = [parquet.read_table(file) for file in sorted(Path(folder).glob("*.parquet"))]
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda r: r["path"])


def test_each_photo_is_written_once_though_the_run_was_stopped() -> None:
    paths = sorted(str(save_photo(Path(f"photos/{n}.jpg"), n)) for n in range(20))
    Path("photos/15.jpg").write_bytes(b"no photo")
    hidden = [Path(path).rename(f"{path}.later") for path in paths[10:]]
    exec(PHOTOS, program())
    assert 0 < len(rows("captions")) < 20
    for path in hidden:
        path.rename(path.with_suffix(""))
    Path("captions/cut_short.parquet").write_bytes(b"PAR1 and half of its rows")
    exec(PHOTOS, program())
    assert Path("captions/cut_short.parquet.cut").exists()

    found = rows("captions")
    assert [row["path"] for row in found] == paths
    assert [row["path"] for row in found if row["error"]] == ["photos/15.jpg"]
    row = found[paths.index("photos/7.jpg")]
    assert row["caption"] == captioner.load().caption("photos/7.jpg").text
    assert row["maps"] is None


def test_photos_of_shards_are_captioned_with_maps() -> None:
    Path("shards").mkdir()
    for shard in range(2):
        with tarfile.open(f"shards/{shard}.tar", "w") as tar:
            for number in range(3):  # The keys are the same in both.
                tar.add(save_photo(Path(f"{number}.jpg"), number))
                tar.add("0.jpg", f"{number}.txt")
            tar.add("0.jpg", "3.txt")
    names = program()
    exec(SHARDS.replace("workers=2", "workers=2, maps=True"), names)
    exec(SHARDS, names)  # Nothing is left to be done.
    found = rows("shard_captions")
    assert [row["path"].partition("shards/")[2] for row in found] == [
        f"{shard}.tar/{number}" for shard in range(2) for number in range(4)
    ]
    assert [row["error"] is None for row in found] == [True, True, True, False] * 2
    caption = captioner.load().caption("2.jpg")
    for row in (found[2], found[6]):
        assert row["caption"] == caption.text
        assert np.array(row["maps"]) == pytest.approx(caption.attention, abs=1e-3)
