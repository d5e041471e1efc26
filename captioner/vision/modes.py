"""Pixels of any of Pillow's modes as 8-bit RGB."""

from __future__ import annotations

from typing import Any

import numpy
from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image of an image of any mode, on white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = _to_8_bits(image)
    if image.mode == "La":
        image = image.convert("LA")
    if not image.has_transparency_data:
        return image.convert("RGB")  # a copy if it is RGB already
    if image.mode != "RGBA":
        image = image.convert("RGBA")
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Convert greys of 16 or 32 bits or floats to L, or LA if one grey is transparent."""
    values = numpy.asarray(image)  # (height, width)
    low, high = _grey_range(values, image.mode)
    shares = values.astype(numpy.float32)  # Changed in place: it may be 400 MB.
    with numpy.errstate(all="ignore"):
        shares /= 2  # so that no difference overflows
        shares -= low / 2
        shares /= high / 2 - low / 2
    numpy.nan_to_num(shares, copy=False, nan=0.0, posinf=1.0, neginf=0.0)
    shares.clip(0, 1, out=shares)
    shares *= 255
    shares += 0.5
    grey = Image.fromarray(shares.astype(numpy.uint8))
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        opaque = (values != transparent).astype(numpy.uint8) * numpy.uint8(255)
        grey.putalpha(Image.fromarray(opaque))
    return grey


def _grey_range(values: numpy.ndarray[Any, Any], mode: str) -> tuple[float, float]:
    """The values of black and white, by the rules of `load_image`."""
    if mode.startswith("I;16"):
        return 0.0, 65535.0
    finite = values[numpy.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    for full in (1.0, 255.0) if mode == "F" else (255.0, 65535.0):
        if low >= 0.0 and high <= full:
            return 0.0, full
    return low, high if high > low else low + 1.0
