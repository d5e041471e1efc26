"""Which part of a photo the encoder saw, and how it moves when the photo is resized."""

from __future__ import annotations

import math
from typing import TypeAlias

from PIL import Image

Region: TypeAlias = tuple[float, float, float, float]
"""left, top, right, bottom in pixels of the photo, counted from its top left corner.

0 is the left edge of the first pixel and the photo's width the right edge of its last; the numbers
need not be whole. The attention map covers exactly this rectangle.
"""

_EDGE_TOLERANCE = 1e-3
"""Pixels by which a region may leave the photo through rounding."""


def check_region(region: Region, photo_size: tuple[int, int]) -> Region:
    """Return `region` cut to a photo of `photo_size` (width, height).

    Raises `ValueError` when it is empty or reaches out of the photo.
    """
    if len(region) != 4:
        raise ValueError(f"region {region!r} is not (left, top, right, bottom)")
    left, top, right, bottom = (float(edge) for edge in region)
    width, height = photo_size
    inside = (
        -_EDGE_TOLERANCE <= left < right <= width + _EDGE_TOLERANCE
        and -_EDGE_TOLERANCE <= top < bottom <= height + _EDGE_TOLERANCE
    )
    if not inside:
        raise ValueError(f"region {region!r} is not a rectangle inside a {width}x{height} photo")
    return (max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height)))


def pixels(region: Region) -> tuple[int, int, int, int]:
    """First column, first row, end column and end row of the pixels whose centre is in `region`.

    A region narrower than a pixel, as a crop of a very long photo drawn small, may hold none: then
    first and end are equal.
    """
    left, top, right, bottom = region
    return (
        math.ceil(left - 0.5),
        math.ceil(top - 0.5),
        math.ceil(right - 0.5),
        math.ceil(bottom - 0.5),
    )


def fit(
    photo: Image.Image, region: Region, longest_side: int, enlarge: bool = True
) -> tuple[Image.Image, Region]:
    """Resize a photo so that its longer side has `longest_side` pixels, and its region with it.

    The aspect ratio is kept to the nearest pixel. With `enlarge` False a smaller photo is returned
    as it is. The photo comes back as RGB.

    Raises `ValueError` as `check_region` does, and for a side below 1.
    """
    if longest_side < 1:
        raise ValueError(f"longest side {longest_side} is below 1 pixel")
    left, top, right, bottom = check_region(region, photo.size)
    rgb = photo if photo.mode == "RGB" else photo.convert("RGB")
    scale = longest_side / max(photo.size)
    if scale > 1 and not enlarge:
        return rgb, (left, top, right, bottom)
    width, height = (max(1, round(side * scale)) for side in photo.size)
    across, down = width / photo.width, height / photo.height
    scaled = (left * across, top * down, right * across, bottom * down)
    if (width, height) != photo.size:
        rgb = rgb.resize((width, height), Image.Resampling.LANCZOS)
    return rgb, scaled
