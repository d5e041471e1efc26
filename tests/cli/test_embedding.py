"""Captions inside photos, as exiftool writes and reads them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from samples import Output, Patch

from captioner.cli.embedding import Embedder
from captioner.cli.main import main
from captioner.data.xmp import Description
from captioner.errors import UserError

FORMATS = ("jpg", "png", "webp", "tif", "heic")
DOG = Description("ein Hund & eine Bö", ["dog", "not sure"], "de", 0.42)
CAT = Description("a cat", ["cat"])

with_exiftool = [
    pytest.mark.exiftool,
    pytest.mark.skipif(
        shutil.which("exiftool") is None, reason="needs exiftool (Debian's libimage-exiftool-perl)"
    ),
]


@pytest.fixture
def embedder() -> Iterator[Embedder]:
    embedder = Embedder()
    yield embedder
    embedder.close()


def save_photo(path: Path) -> Path:
    if path.suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x010F] = "Camera"
    Image.fromarray(pixels).save(path, exif=exif)
    os.utime(path, (1e9, 1e9))
    return path


def pixels(path: Path) -> Any:
    with Image.open(path) as photo:
        return np.asarray(photo)


def exiftool(*arguments: str | Path) -> Any:
    command = ["exiftool", "-json", "-G1", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]


def edit(*arguments: str | Path) -> None:
    subprocess.run(["exiftool", "-q", "-P", "-overwrite_original", *arguments], check=True)


class TestEmbedder:
    pytestmark = with_exiftool

    @pytest.mark.parametrize("suffix", FORMATS)
    def test_photos_get_xmp_and_iptc_and_nothing_else_changes(
        self, suffix: str, tmp_path: Path, embedder: Embedder
    ) -> None:
        photo = save_photo(tmp_path / f"the photo.{suffix}")
        before = pixels(photo)
        for description in (DOG, CAT, DOG, DOG):  # What captioner wrote is replaced.
            assert embedder.embed(str(photo), description)
            assert (pixels(photo) == before).all()
            assert photo.stat().st_mtime == 1e9
        assert list(tmp_path.iterdir()) == [photo]
        found = exiftool("-XMP:all", "-IPTC:all", "-EXIF:Make", photo)
        expected = {
            "IFD0:Make": "Camera",
            "XMP-dc:Description": DOG.caption,
            "XMP-dc:Description-de": DOG.caption,
            "XMP-dc:Subject": DOG.keywords,
            "XMP-captioner:Confidence": 0.42,
        }
        if suffix in ("jpg", "tif"):
            expected |= {"IPTC:Caption-Abstract": DOG.caption, "IPTC:Keywords": DOG.keywords}
        assert found.items() >= expected.items()
        assert ("IPTC:Keywords" in found) == (suffix in ("jpg", "tif"))

    def test_words_by_somebody_stay(self, tmp_path: Path, embedder: Embedder) -> None:
        photo = save_photo(tmp_path / "a.jpg")
        words = {"Caption-Abstract": "Unser Rex", "City": "Zürich", "Keywords": "dog"}
        edit("-XMP-xmp:Rating=4", *(f"-IPTC:{name}={word}" for name, word in words.items()), photo)
        assert not embedder.embed(str(photo), DOG)
        assert not embedder.embed(str(photo), CAT)  # The keyword "dog" is the user's.
        found = exiftool("-XMP:all", "-IPTC:all", photo)
        assert (
            found.items()
            >= {
                "IPTC:Caption-Abstract": "Unser Rex",
                "IPTC:City": "Zürich",
                "IPTC:Keywords": ["dog", "cat"],
                "XMP-dc:Subject": "cat",
                "XMP-xmp:Rating": 4,
            }.items()
        )
        assert "XMP-dc:Description" not in found
        assert embedder.embed(str(photo), CAT, overwrite=True)
        assert exiftool("-IPTC:all", photo)["IPTC:Caption-Abstract"] == "a cat"

    def test_a_photo_that_cannot_be_written_is_left_alone(
        self, tmp_path: Path, embedder: Embedder
    ) -> None:
        photo = save_photo(tmp_path / "a.bmp")
        deep = save_photo(tmp_path / "deep.jpg")
        (tmp_path / "long.txt").write_text("x" * 100_000)
        edit(f"-XMP-dc:Rights<={tmp_path / 'long.txt'}", deep)
        for path, reason in ((photo, "Writing of BMP files"), (deep, "XMP in several parts")):
            before = path.read_bytes()
            with pytest.raises(UserError, match=reason):
                embedder.embed(str(path), DOG)
            assert path.read_bytes() == before
        assert embedder.embed(str(save_photo(tmp_path / "b.jpg")), DOG)

    def test_the_command_embeds_and_resumes(self, folder: Path, capsys: Output) -> None:
        command = ["caption", "a.png", "--model", "tiny-model", "--embed", "--jsonl", "o.jsonl"]
        assert main(command) == 0
        record = json.loads(Path("o.jsonl").read_text())
        assert record["files"] == {"embed": "a.png"}
        assert exiftool("-XMP:all", "a.png")["XMP-dc:Description"] == record["caption"]
        assert main([*command, "--resume"]) == 0
        assert "1 of 1 photos are captioned already" in capsys.readouterr().err


def test_without_exiftool_a_sentence_says_where_to_get_it(
    folder: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("PATH", "")
    command = ["caption", "a.png", "--model", "tiny-model", "--embed"]
    assert main([*command, "--dry-run"]) == 0
    assert main(command) == 2
    assert "--embed needs exiftool; see https://exiftool.org" in capsys.readouterr().err
