"""Converts photos of every mode to upright RGB of 8 bits."""

from __future__ import annotations

import hashlib
from contextlib import suppress

import numpy as np
from PIL import ExifTags, Image, ImageOps
from PIL.TiffImagePlugin import PHOTOMETRIC_INTERPRETATION

from captioner.arrays import Array

DIGEST = "digest"  # In `Image.info`: of the photo without its metadata.
ORIGINAL_SIZE = "original size"  # In `Image.info`: width and height in the file, upright.

_BAND = 1_000_000  # Pixels of a photo that are converted at a time.


def upright_rgb(
    image: Image.Image,
    size: tuple[int, int],
    sufficient_side: int | None = None,
    has_digest: bool = False,
) -> Image.Image:
    """Decode a photo as `load_image` gives it.

    size: in the file, before a JPEG is scaled. has_digest: with the `DIGEST` of its pixels and of
    how they lie.
    """
    image.load()
    orientation = 1
    with suppress(Exception):  # EXIF data that are damaged leave the photo as it lies.
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if orientation in range(5, 9):  # EXIF 2.32, table 4.
        size = size[1], size[0]
    side = sufficient_side or max(image.size)
    divisor = max(1, min(image.size) // side, -(-max(image.size) // (16 * side)))
    digest = hashlib.sha256(f"{size} {orientation}".encode())
    # Band by band, which takes less memory than the whole photo in RGB.
    image = _scaled(image)
    width, height = image.size
    rows = max(1, _BAND // (width * divisor)) * divisor
    photo = Image.new("RGB", (-(-width // divisor), -(-height // divisor)))
    for top in range(0, height, rows):
        band = _to_rgb(image.crop((0, top, width, min(top + rows, height))))
        if has_digest:
            digest.update(band.tobytes())
        photo.paste(band.reduce(divisor), (0, top // divisor))
    if orientation in range(2, 9):
        photo.getexif()[ExifTags.Base.Orientation] = orientation
        ImageOps.exif_transpose(photo, in_place=True)
    photo.info = {ORIGINAL_SIZE: size}  # Pillow copies it when it reduces.
    if has_digest:
        photo.info[DIGEST] = digest.hexdigest()
    return photo


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image of an image of any mode of 8 bits, on white."""
    if not image.has_transparency_data:
        return image.convert("RGB")  # A copy if it is RGB already.
    image = image.convert("RGBA")
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _scaled(image: Image.Image) -> Image.Image:
    """The image, with greys of more than 8 bits and floats as 8 bits.

    White is the least of 1, 255, 4095 and 65535 that no value exceeds, if the brightest is a
    sixteenth of it; otherwise the brightest. Black is 0, or the darkest of negative values.
    """
    if image.mode[0] not in "IF":
        return image
    values: Array = np.asarray(image)  # (height, width)
    scaled = np.empty(values.shape, np.uint8)
    count = -(-values.size // _BAND)
    bands = np.array_split(values, count)
    black = white = 0.0
    for band in bands:
        finite = band[np.isfinite(band)].astype(np.float32)
        black = min(black, float(finite.min(initial=0)))
        white = max(white, float(finite.max(initial=0)))
    whites = [most for most in (1, 255, 4095, 65535) if most / 16 <= white <= most]
    if whites and black == 0:
        white = whites[0]
    for band, result in zip(bands, np.array_split(scaled, count), strict=True):
        shares = np.nan_to_num(band.astype(np.float32), nan=black).clip(black, white) - black
        result[:] = shares * (255 / (white - black or 1)) + 0.5
    if getattr(image, "tag_v2", {}).get(PHOTOMETRIC_INTERPRETATION) == 0:
        scaled = 255 - scaled  # White is 0; Pillow inverts 8 bits only.
    return Image.fromarray(scaled)
