"""Photos that are deleted; raw files, by previews in files made here."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from samples import CAPTION, Output, exiftool, photo_bytes, save_photo

from captioner.cli.main import main
from captioner.vision.images import load_image
from captioner.vision.raw import RAW_SUFFIXES

DC = "xmlns:dc='http://purl.org/dc/elements/1.1/'"
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


def records() -> dict[str, dict[str, object]]:
    lines = Path("o.jsonl").read_text().splitlines()
    return {record["image"]: record for record in map(json.loads, lines)}


def write(changed: dict[str, dict[str, object]]) -> None:
    Path("o.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in changed.values()))


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


def test_pruning_removes_what_captioner_alone_wrote(folder: Path, capsys: Output) -> None:
    for number, name in enumerate("cde"):
        save_photo(Path(f"{name}.png"), 10 + number)
    assert main([*CAPTION, ".", *TABLE, "--text"]) == 0
    edited = Path("b.xmp").read_text().replace("<dc:subject", "<dc:title>Rex</dc:title><dc:subject")
    Path("b.xmp").write_text(edited.replace("<dc:title", f"<dc:title {DC}"))
    found = records()
    found["d.png"]["caption"] = "Rex"
    write(found)
    for name in "abcd":
        Path(f"{name}.png").unlink()
    save_photo(Path("c.jpg"))
    capsys.readouterr()
    for options in (["--dry-run"], ["--prune", "--dry-run"]):
        assert main([*CAPTION, "e.png", *TABLE, *options]) == 0
        assert "o.jsonl keeps 4 records of photos that are gone" in capsys.readouterr().err
    assert main([*CAPTION, "e.png", *TABLE, "--prune"]) == 0
    printed = capsys.readouterr().err
    assert "o.jsonl: pruned 3 records and 1 sidecar\n" in printed
    assert "keeps 1 record of photos that are gone, d.png the first" in printed
    assert [*records()] == ["d.png", "e.png"]
    assert {*map(str, Path().glob("*.xmp"))} == {"b.xmp", "c.xmp", "d.xmp", "e.xmp"}
    assert len([*Path().glob("*.txt")]) == 5
