"""Captions in photos, by exiftool; and photos that a kill has torn."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from samples import CAPTION, Output, Patch, exiftool, save_photo

from captioner.cli.embedding import Embedder
from captioner.cli.main import main
from captioner.data.xmp import Description
from captioner.errors import UserError

DOG = Description("ein Hund & eine Bö", ["dog", "not sure"], "de", 0.42)
CAT = Description("a cat", ["cat"])


def save_noise(path: Path) -> Path:
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


@pytest.mark.exiftool
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif", "heic"])
def test_photos_get_xmp_and_iptc_alone(suffix: str, tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / f"the photo.{suffix}")
    before = pixels(photo)
    for description in (DOG, CAT, DOG, DOG):  # What captioner wrote is replaced.
        assert embedder.embed(photo, description) == ""
        assert (pixels(photo) == before).all()
        assert photo.stat().st_mtime == 1e9
    assert list(tmp_path.iterdir()) == [photo]
    found = exiftool("-EXIF:Make", photo)
    expected = {
        "IFD0:Make": "Camera",
        "XMP-dc:Description": DOG.caption,
        "XMP-dc:Description-de": DOG.caption,
        "XMP-dc:Subject": DOG.keywords,
    }
    if suffix in ("jpg", "tif"):
        expected |= {"IPTC:Caption-Abstract": DOG.caption, "IPTC:Keywords": DOG.keywords}
    assert found.items() >= expected.items()
    assert ("IPTC:Keywords" in found) == (suffix in ("jpg", "tif"))


@pytest.mark.exiftool
def test_words_by_somebody_stay(tmp_path: Path, embedder: Embedder) -> None:
    photo = save_noise(tmp_path / "a.jpg")
    words = {"Caption-Abstract": "Unser Rex", "City": "Zürich", "Keywords": "dog"}
    edits = ["-XMP-xmp:Rating=4", *(f"-IPTC:{name}={word}" for name, word in words.items())]
    subprocess.run(["exiftool", "-q", "-overwrite_original", *edits, photo], check=True)
    assert embedder.embed(photo, DOG) == "Unser Rex"
    assert embedder.embed(photo, CAT) == "Unser Rex"  # The keyword "dog" is the user's.
    found = exiftool(photo)
    kept = {"IPTC:Caption-Abstract": "Unser Rex", "IPTC:City": "Zürich", "XMP-xmp:Rating": 4}
    kept |= {"IPTC:Keywords": ["dog", "cat"], "XMP-dc:Subject": "cat"}
    assert found.items() >= kept.items()
    assert "XMP-dc:Description" not in found
    assert embedder.embed(photo, CAT, overwrite=True) == ""
    assert exiftool(photo)["IPTC:Caption-Abstract"] == "a cat"


@pytest.mark.exiftool
def test_a_photo_that_cannot_be_written_is_left_alone(tmp_path: Path, embedder: Embedder) -> None:
    photo, deep = save_noise(tmp_path / "a.bmp"), save_noise(tmp_path / "deep.jpg")
    long = f"-XMP-dc:Rights={'x' * 100_000}"
    subprocess.run(["exiftool", "-q", "-overwrite_original", long, deep], check=True)
    for path, reason in ((photo, "Writing of BMP files"), (deep, "XMP in several parts")):
        before = path.read_bytes()
        with pytest.raises(UserError, match=reason):
            embedder.embed(path, DOG)
        assert path.read_bytes() == before
    assert embedder.embed(save_noise(tmp_path / "b.jpg"), DOG) == ""


@pytest.mark.exiftool
def test_the_command_embeds_and_resumes_and_says_where_to_get_exiftool(
    folder: Path, embedder: Embedder, monkeypatch: Patch, capsys: Output
) -> None:
    command = [*CAPTION, "a.png", "--embed", "--jsonl", "o.jsonl"]
    assert main(command) == 0
    record = json.loads(Path("o.jsonl").read_text())
    assert record["files"] == {"embed": "a.png"}
    assert exiftool("a.png")["XMP-dc:Description"] == record["caption"]
    assert main([*command, "--resume"]) == 0
    assert "1 of 1 photos are captioned already" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    for more in (["--dry-run"], []):
        assert main([*CAPTION, "a.png", "--embed", *more]) == 2
        assert "--embed needs exiftool; see https://exiftool.org" in capsys.readouterr().err
