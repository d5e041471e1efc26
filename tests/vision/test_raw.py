"""Raw files are read by their previews, whatever exiftool says of them."""

import json
import sys
from base64 import b64encode
from pathlib import Path

import pytest
from refusals import refuses
from samples import Patch, photo_bytes

from captioner.vision.images import load_image

PREVIEW = "base64:" + b64encode(photo_bytes(kind="JPEG")).decode()


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A raw file, of which an exiftool says what stands in `said.json`."""
    stub = tmp_path / "bin/exiftool"
    stub.parent.mkdir()
    reader = f"print(open({str(tmp_path / 'said.json')!r}).read())"
    stub.write_text(f"#!{sys.executable}\n{reader}\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(stub.parent))
    path = tmp_path / "a.dng"
    path.write_bytes(b"raw")
    return path


@pytest.mark.parametrize(
    ("orientation", "size"),
    [(6, (90, 120)), (1, (120, 90)), (0, (120, 90)), (300, (120, 90)), ("odd", (120, 90))],
)
def test_a_preview_is_upright_and_an_odd_orientation_is_none(
    orientation: object, size: tuple[int, int], raw: Path
) -> None:
    said = [{"PreviewImage": PREVIEW, "Orientation": orientation}]
    raw.with_name("said.json").write_text(json.dumps(said))
    assert load_image(raw).size == size


@pytest.mark.parametrize("said", ["", "[]", '[{"PreviewImage": 7}]', '[{"OtherImage": "é"}]'])
def test_damage_is_named(said: str, raw: Path) -> None:
    raw.with_name("said.json").write_text(said)
    refuses(r"cannot read .*a\.dng", load_image, raw)
