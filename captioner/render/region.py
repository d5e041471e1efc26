"""The maps of a drawing, and the part of the photo that they cover.

Another shape or number is a mistake of the calling program, so it raises `ValueError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

Region: TypeAlias = tuple[float, float, float, float]
"""left, top, right, bottom in pixels from the top left corner of the photo.

0 is the left edge of the first pixel, the photo's width the right edge of the last one; fractions
are allowed. The attention map covers exactly this rectangle.
"""

_EDGE_TOLERANCE = 1e-3
"""Pixels by which rounding may move a region out of the photo."""

SUM_TOLERANCE = 0.01
"""Largest deviation of a map's sum from 1; half-precision weights reach about this accuracy."""


def check_maps(attention: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Attention maps (T, rows, columns) as float64, checked to be weights that sum to 1."""
    maps = np.asarray(attention, dtype=np.float64)
    if maps.ndim != 3 or maps.size == 0:
        raise ValueError(f"attention must have shape (T, rows, columns), not {maps.shape}")
    for position, weights in enumerate(maps):
        if not (weights >= 0).all() or abs(weights.sum() - 1) > SUM_TOLERANCE:
            raise ValueError(f"attention map {position} is not of weights >= 0 that sum to 1")
    return maps


def check_attention(words: Sequence[str], attention: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The maps of a caption, as from `check_maps`, one for each of the T words."""
    maps = check_maps(attention)
    if len(maps) != len(words):
        raise ValueError(f"there are {len(words)} words but {len(maps)} attention maps")
    return maps


def check_region(region: Region, photo_size: tuple[int, int]) -> Region:
    """The region clipped to a photo of `photo_size` (width, height); a part of a pixel at most."""
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
    """First column, first row, end column, end row of the pixels centred in a region.

    A region narrower than a pixel (the crop of a very long photo, drawn small) may contain none:
    then first and end are equal.
    """
    left, top, right, bottom = (math.ceil(edge - 0.5) for edge in region)
    return left, top, right, bottom


def fit(
    photo: Image.Image, region: Region, longest_side: int, enlarge: bool = True
) -> tuple[Image.Image, Region]:
    """Resize a photo, and its region, to `longest_side` pixels on the longer side; as RGB.

    The aspect ratio is kept to the nearest pixel. If `enlarge` is False, a smaller photo keeps its
    size.
    """
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
