"""Raw files, by previews in files made here."""

import struct
from pathlib import Path

import numpy as np
import pytest
from samples import CAPTION, Output, exiftool, photo_bytes

from captioner.cli.main import main
from captioner.vision.images import load_image
from captioner.vision.raw import RAW_SUFFIXES

TABLE = ["--jsonl", "o.jsonl", "--resume", "--xmp"]


def raw_file(preview: bytes, orientation: int = 1) -> bytes:
    """A TIFF with a preview in a second directory, as NEF and DNG have it."""

    def directory(*tags: tuple[int, int, int]) -> bytes:
        entries = [struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags]
        return struct.pack("<H", len(tags)) + b"".join(entries) + bytes(4)

    first = directory((254, 4, 1), (274, 3, orientation), (330, 4, 50))  # SubfileType, SubIFDs.
    second = directory((254, 4, 1), (513, 4, 92), (514, 4, len(preview)))  # Place and size.
    return b"II*\0\x08\0\0\0" + first + second + preview


def save_raw(path: Path, orientation: int = 1) -> Path:
    path.write_bytes(raw_file(photo_bytes(kind="JPEG"), orientation))
    return path


@pytest.mark.exiftool
@pytest.mark.parametrize("suffix", sorted(RAW_SUFFIXES))
def test_the_preview_of_a_raw_file_is_loaded_upright(suffix: str, tmp_path: Path) -> None:
    raw = save_raw(tmp_path / f"the raw{suffix.upper()}", orientation=6)
    upright = np.rot90(np.asarray(load_image(photo_bytes(kind="JPEG"))), -1)
    assert (np.asarray(load_image(raw)) == upright).all()


@pytest.mark.exiftool
def test_raw_files_have_sidecars_and_are_not_written_into(folder: Path, capsys: Output) -> None:
    content = save_raw(Path("a.NEF")).read_bytes()
    for _ in range(2):
        assert main([*CAPTION, ".", *TABLE]) == 0
    assert capsys.readouterr().err.endswith("3 of 3 photos are captioned already\n")
    assert exiftool("-SidecarForExtension", "a.xmp")["XMP-photoshop:SidecarForExtension"] == "NEF"
    assert sorted(path.name for path in Path().glob("*.xmp")) == ["a.png.xmp", "a.xmp", "b.xmp"]
    assert main([*CAPTION, "a.NEF", "--embed"]) == 2
    assert "a.NEF is a raw file, into which nothing is written" in capsys.readouterr().err
    assert Path("a.NEF").read_bytes() == content
    Path("a.NEF").write_bytes(content[:40])
    assert main([*CAPTION, "a.NEF"]) == 2
    assert "cannot read the raw file a.NEF" in capsys.readouterr().err
