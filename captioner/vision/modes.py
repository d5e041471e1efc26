"""Pixels of any of Pillow's modes as 8-bit RGB."""

from __future__ import annotations

import numpy
from PIL import Image


def to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image of an image of any mode, on white."""
    if image.mode.startswith("I"):
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
    """Convert greys of 16 bits to L, or LA if one grey is transparent.

    Pillow reads some of their files as 32 bits; with no value above 255 those are of 8 bits.
    """
    values = numpy.asarray(image)  # (height, width)
    white = 65535 if image.mode.startswith("I;16") or values.max() > 255 else 255
    shares = values.clip(0, white).astype(numpy.float32)  # Changed in place: it may be 400 MB.
    shares *= 255 / white
    shares += 0.5
    grey = Image.fromarray(shares.astype(numpy.uint8))
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        opaque = (values != transparent).astype(numpy.uint8) * numpy.uint8(255)
        grey.putalpha(Image.fromarray(opaque))
    return grey
