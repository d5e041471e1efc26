"""HEIC photos: read upright, within the limits of all photos, and named without pillow-heif."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any

import photo_samples
import pytest
from photo_samples import smooth_photo, turned
from PIL import Image, ImageChops, ImageStat
from samples import save_photo

from captioner.cli.main import main
from captioner.errors import UserError
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import load_image, original_size

pillow_heif = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")


def without_metadata(image: Image.Image, **options: Any) -> bytes:
    pillow_heif.register_heif_opener()
    return photo_samples.encoded(image, "HEIF", **options)


def encoded(image: Image.Image, orientation: int = 1, **options: Any) -> bytes:
    """A HEIC file, turned by its own property and by EXIF, as telephones write it."""
    return without_metadata(image, quality=90, exif=turned(orientation).tobytes(), **options)


def difference(first: Image.Image, second: Image.Image) -> float:
    assert first.size == second.size
    return max(ImageStat.Stat(ImageChops.difference(first, second)).mean)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_once(orientation: int) -> None:
    jpeg = photo_samples.encoded(
        smooth_photo(160, 96), "JPEG", quality=95, exif=turned(orientation)
    )
    found = load_image(encoded(smooth_photo(160, 96), orientation))
    assert difference(found, load_image(jpeg)) < 4
    assert (found.size == (160, 96)) == (orientation < 5)


def test_a_photo_in_tiles_is_read_with_its_size() -> None:
    tiled = load_image(encoded(smooth_photo(640, 480), 6, tile_size=128), sufficient_side=100)
    assert tiled.size == (120, 160)
    assert original_size(tiled) == (480, 640)
    upright = smooth_photo(640, 480).transpose(Image.Transpose.ROTATE_270).reduce(4)
    assert difference(tiled, upright) < 4


def test_a_thumbnail_never_stands_for_the_photo() -> None:
    loaded = load_image(encoded(smooth_photo(640, 480), thumbnails=[320]), sufficient_side=200)
    assert loaded.size == (320, 240)
    whole = load_image(encoded(smooth_photo(640, 480))).reduce(2)
    assert difference(loaded, whole) < 1


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_damaged_file_is_named(share: float) -> None:
    content = encoded(smooth_photo(160, 96))
    with pytest.raises(UserError, match=r"^a\.heic is .*cut off"):
        load_image(content[: int(len(content) * share)], name="a.heic")


def resized(content: bytes, width: int, height: int) -> bytes:
    """The file with another size in its header and in its grid, if it has one."""
    old = next(iter(pillow_heif.open_heif(content))).size
    for form in (">II", ">HH"):
        content = content.replace(struct.pack(form, *old), struct.pack(form, width, height), 2)
    return content


def cropped(content: bytes, width: int, height: int) -> bytes:
    """The file with a crop, in place of its colour profile."""
    start = content.index(b"colr") - 4
    end = start + int.from_bytes(content[start : start + 4], "big")
    crop = struct.pack(">I4s8I", 40, b"clap", width, 1, height, 1, 0, 1, 0, 1)
    made = bytearray(content)
    for kind, field in ((b"meta", -4), (b"iprp", -4), (b"ipco", -4), (b"iloc", 16)):
        place = content.index(kind) + field
        longer = int.from_bytes(content[place : place + 4], "big") + len(crop) - (end - start)
        made[place : place + 4] = longer.to_bytes(4, "big")
    properties = content.index(bytes.fromhex("81020304"))  # hvcC, colr, ispe, pixi
    made[properties : properties + 4] = bytes.fromhex("81030482")
    made[start:end] = crop
    return bytes(made)


def test_limits_hold_for_what_is_decoded_not_only_for_what_is_seen() -> None:
    tiled = without_metadata(smooth_photo(640, 480), tile_size=128)
    files = {
        "whole": without_metadata(smooth_photo(640, 480)),
        "crop": cropped(without_metadata(smooth_photo(640, 480)), 40, 30),
        "grid": resized(tiled, 40, 30),
        "larger header": resized(without_metadata(smooth_photo(160, 96)), 12_000, 10_000),
    }
    assert load_image(files["crop"]).size == (40, 30)
    assert load_image(files["grid"]).size == (40, 30)
    for name, content in files.items():
        with pytest.raises(UserError, match=f"^{name} is too large: .* the limit is 100,000$"):
            load_image(content, 100_000, name=name)
    # Tiles may reach beyond the picture.
    assert (
        load_image(without_metadata(smooth_photo(641, 481), tile_size=128), 641 * 481).size[0]
        == 641
    )


def test_a_file_whose_header_lies_about_its_size_is_not_decoded() -> None:
    for size in ((64, 64), (300, 200)):
        with pytest.raises(UserError, match="damaged"):
            load_image(resized(without_metadata(smooth_photo(160, 96)), *size))


def test_a_decoding_process_reads_it() -> None:
    pool = DecodingPool(1, seconds=60.0)
    try:
        content = encoded(smooth_photo(160, 96), 8)
        loaded = pool.load(content, "a.heic", 20_000, 48)
        assert loaded.tobytes() == load_image(content, sufficient_side=48).tobytes()
        assert original_size(loaded) == (96, 160)
    finally:
        pool.close()


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a telephone, and a model beside it."""
    monkeypatch.chdir(tmp_path)
    save_photo(tmp_path / "photos" / "a.jpg")
    for name, orientation in (("b.HEIC", 6), ("c.heif", 3), ("d.hif", 1)):
        (tmp_path / "photos" / name).write_bytes(encoded(smooth_photo(160, 96), orientation))
    for name in ("1.MOV", "2.mp4", "3.dng", "notes.txt", ".hidden.mov"):
        (tmp_path / "photos" / name).write_bytes(b"")
    return tmp_path


def test_a_folder_of_a_telephone_is_captioned_and_what_is_not_is_counted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["caption", "photos", "--model", "tiny-model", "--format", "{path}"]
    assert main([*command, "--overlay", "maps/"]) == 0
    printed = capsys.readouterr()
    names = ["a.jpg", "b.HEIC", "c.heif", "d.hif"]
    assert printed.out.splitlines() == [os.path.join("photos", name) for name in names]
    assert printed.err == "captioner: 2 videos and 1 raw file were not read\n"
    assert {path.name for path in Path("maps").iterdir()} == {"a.png", "b.png", "c.png", "d.png"}
    assert main(["caption", "photos", "--model", "tiny-model", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_without_pillow_heif_each_photo_is_named_with_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    command = ["caption", "photos", "--model", "tiny-model", "--format", "{path}"]
    assert main(command) == 2
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [os.path.join("photos", "a.jpg")]
    for name in ("b.HEIC", "c.heif", "d.hif"):
        path = os.path.join("photos", name)
        said = f'{path} is HEIC, which needs pillow-heif: pip install "captioner[heif]"\n'
        assert f"captioner: {said}" in printed.err
