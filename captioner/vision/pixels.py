"""Estimates what decoding a photo costs; converts its pixels to upright 8-bit RGB."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageOps
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT

from captioner.arrays import Array
from captioner.errors import UserError
from captioner.outcomes import Budget

HELD = 600_000_000  # Most bytes of memory for decoding a photo.
BUDGET = Budget(HELD)  # Shared by the photos decoded at a time, here and in decoding processes.
LONGEST_SIDE = 30_000  # pixels
LONGEST_SHAPE = 100  # Longer side over shorter.
ORIGINAL_SIZE = "original size"  # In `Image.info`: width and height in the file, upright.
DEPTHS = "bits of each channel"  # In `Image.info`, of JPEG 2000.

# By sample format and bits: types of TIFF greys that Pillow reads with the other sign.
_TIFF_TYPES = {(2, 8): "int8", (1, 32): "uint32"}

_BAND = 1_000_000  # Pixels of a photo that are converted at a time.
_LIGHT = 100_000_000  # Bytes, and a quarter of the pixels of all scans, decoded in this process.
# Slow decoders, and how many times the bytes of the photo each takes.
_BUFFERS = {"WEBP": 4, "AVIF": 3, "HEIF": 3, "JPEG2000": 5}
# Bytes of a pixel by mode; of greys that are scaled to 8 bits, also of their copies.
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 8, "I": 16, "F": 16}
_SCAN = b"\xff\xda"  # Begins a scan of a JPEG: SOS (ITU-T T.81, B.2.3).


def check_size(
    image: Image.Image, name: str, maximum_pixels: int, sufficient_side: int | None = None
) -> int:
    """Refuse what is too large; returns the bytes that decoding takes, JPEG scaled already."""
    width, height = image.size
    held = 0
    if getattr(image, "layer", None) and image.info.get("progressive"):  # All coefficients.
        areas = [layer[1] * layer[2] for layer in image.layer]  # type: ignore[attr-defined]
        held = 2 * width * height * sum(areas) // max(areas)
    if sufficient_side is not None and image.format != "HEIF":  # A thumbnail may differ.
        image.draft(None, (sufficient_side, sufficient_side))
    longer, shorter = max(image.size), min(image.size)
    depth = _PIXEL_BYTES.get(image.mode, 4)
    held += longer * shorter * depth * _BUFFERS.get(image.format or "", 1)
    pixels = f"{width} x {height} is {width * height:,} pixels, the limit is {maximum_pixels:,}"
    sides = f"{LONGEST_SIDE:,} pixels, and {LONGEST_SHAPE} times the shorter side"
    memory = f"{held / 1e6:,.0f} MB to decode, and the limit is {HELD / 1e6:,.0f} MB"
    is_long = longer > min(LONGEST_SIDE, LONGEST_SHAPE * shorter)
    refused = {
        "has no pixels": shorter == 0,
        f"is too large: {pixels}": width * height > maximum_pixels,
        f"is too long: it is {width} x {height}, and the limit is {sides}": is_long,
        f"is too large: its {width} x {height} take {memory}": image.format and held > HELD,
    }
    if faults := [fault for fault, is_refused in refused.items() if is_refused]:
        raise UserError(f"{name} {faults[0]}")
    return held


def is_heavy(image: Image.Image, file: BinaryIO, held: int, size: tuple[int, int]) -> bool:
    """Whether decoding may take much memory or time. size: in the file, before `check_size`."""
    if held > _LIGHT or image.format in _BUFFERS:
        return True
    if image.format == "TIFF":
        return image.info.get("compression") != "raw"
    if image.format not in ("JPEG", "MPO"):
        return False
    place = file.tell()
    if file.seek(0, os.SEEK_END) > _LIGHT:
        return True
    file.seek(0)
    head = file.read(place)
    if image.format == "JPEG" and not image.info.get("progressive"):
        # After a first scan with all channels the decoder reads no other.
        # The head ends with _SCAN, the length of the rest, the count n of channels, 2 n + 3 bytes.
        starts = {n: _SCAN + bytes([0, 6 + 2 * n, n]) for n in range(1, 5)}
        counts = [n for n in starts if head[-8 - 2 * n :].startswith(starts[n])]
        if counts[:1] == [len(image.getbands())]:
            return False
    scans = head.count(_SCAN) + file.read().count(_SCAN)  # The decoder decodes every one.
    file.seek(place)
    return scans * size[0] * size[1] > 4 * _LIGHT


def decode(
    image: Image.Image, size: tuple[int, int], sufficient_side: int | None = None
) -> Image.Image:
    """The photo as `load_image` gives it. size: in the file, before `check_size`."""
    image.load()
    tags = dict(getattr(image, "tag_v2", {}))
    orientation = 1
    with suppress(Exception):  # EXIF data that are damaged leave the photo as it lies.
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if orientation in range(5, 9):  # EXIF 2.32, table 4.
        size = size[1], size[0]
    divisor = 1
    if sufficient_side:
        longest = 16 * sufficient_side
        divisor = max(1, min(image.size) // sufficient_side, -(-max(image.size) // longest))
    photo = _to_rgb_reduced(_to_8_bits(image, tags), divisor)
    if orientation in range(2, 9):
        photo.getexif()[ExifTags.Base.Orientation] = orientation
        ImageOps.exif_transpose(photo, in_place=True)
    photo.info = {ORIGINAL_SIZE: size}  # Pillow copies it when it reduces.
    return photo


def _to_rgb_reduced(image: Image.Image, divisor: int) -> Image.Image:
    """The photo in RGB, both sides divided: band by band, which takes less memory."""
    width, height = image.size
    rows = max(1, _BAND // (width * divisor)) * divisor
    page = Image.new("RGB", (-(-width // divisor), -(-height // divisor)))
    for top in range(0, height, rows):
        band = _to_rgb(image.crop((0, top, width, min(top + rows, height))))
        page.paste(band.reduce(divisor), (0, top // divisor))
    return page


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image of an image of any mode of 8 bits, on white."""
    if not image.has_transparency_data:
        return image.convert("RGB")  # A copy if it is RGB already.
    image = image.convert("RGBA")
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _to_8_bits(image: Image.Image, tags: dict[int, Any]) -> Image.Image:
    """The image, scaled if it has more bits, fewer or a sign. tags: of a TIFF file."""
    depths = image.info.get(DEPTHS, ())
    if len(depths) == len(image.getbands()) and min(depths) < 8:
        return _spread(image, depths)
    kind = tuple(tags.get(tag, (1,))[0] for tag in (SAMPLEFORMAT, BITSPERSAMPLE))
    if image.mode[0] not in "IF" and kind not in _TIFF_TYPES:
        return image
    image = _scaled(image, _TIFF_TYPES.get(kind))
    if tags.get(PHOTOMETRIC_INTERPRETATION) == 0:  # White is 0; Pillow inverts 8 bits only.
        image = ImageOps.invert(image)
    return image


def _spread(image: Image.Image, depths: Sequence[int]) -> Image.Image:
    """White as 255, indices of a palette as they are: Pillow shifts fewer bits left."""
    table: list[int] = []
    for bits in depths:
        step = 1 if image.mode == "P" else 255 / (2**bits - 1)
        table += [round((value >> (8 - bits)) * step) for value in range(256)]
    return image.point(table)


def _scaled(image: Image.Image, dtype: str | None) -> Image.Image:
    """Greys of more than 8 bits, signed ones and floats, as 8 bits. dtype: the values' own.

    White is the least of 1, 255, 4095 and 65535 that no value exceeds, if the brightest is a
    sixteenth of it; otherwise the brightest. Black is 0, or the darkest of negative values.
    """
    values: Array = np.asarray(image)  # (height, width)
    scaled = np.empty(values.shape, np.uint8)
    count = -(-values.size // _BAND)
    bands = np.array_split(values.view(dtype or values.dtype), count)
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
    return Image.fromarray(scaled)
