"""HEIC photos: read upright, and named without pillow-heif."""

import sys
from typing import Any

import photo_samples
import pytest
from photo_samples import smooth_photo, turned
from PIL import Image, ImageChops, ImageStat
from samples import Patch

from captioner.errors import UserError
from captioner.vision.images import load_image, original_size

pillow_heif = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")


def encoded(image: Image.Image, orientation: int = 1, **options: Any) -> bytes:
    """A HEIC file, turned by its own property and by EXIF, as telephones write it."""
    pillow_heif.register_heif_opener()
    exif = turned(orientation).tobytes()
    return photo_samples.encoded(image, "HEIF", quality=90, exif=exif, **options)


def difference(first: Image.Image, second: Image.Image) -> float:
    assert first.size == second.size
    return max(ImageStat.Stat(ImageChops.difference(first, second)).mean)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_once(orientation: int) -> None:
    photo = smooth_photo(160, 96)
    jpeg = photo_samples.encoded(photo, "JPEG", quality=95, exif=turned(orientation))
    found = load_image(encoded(photo, orientation))
    assert difference(found, load_image(jpeg)) < 4
    assert (found.size == (160, 96)) == (orientation < 5)


def test_a_photo_in_tiles_is_read_with_its_size() -> None:
    tiled = load_image(encoded(smooth_photo(640, 480), 6, tile_size=128), sufficient_side=100)
    assert tiled.size == (120, 160)
    assert original_size(tiled) == (480, 640)
    upright = smooth_photo(640, 480).transpose(Image.Transpose.ROTATE_270).reduce(4)
    assert difference(tiled, upright) < 4


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_damaged_file_is_named(share: float) -> None:
    content = encoded(smooth_photo(160, 96))
    with pytest.raises(UserError, match=r"cannot read a\.heic: |^a\.heic is .*damaged"):
        load_image(content[: int(len(content) * share)], name="a.heic")


def test_without_pillow_heif_it_says_what_to_install(monkeypatch: Patch) -> None:
    content = encoded(smooth_photo(160, 96))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(UserError, match=r'^b\.HEIC is HEIC, .*: pip install "captioner\[heif\]"$'):
        load_image(content, name="b.HEIC")
