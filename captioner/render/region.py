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
"""left, top, right, bottom in pixels from the top left corner of the photo, or fractions of them.

0 is the left edge of the first pixel, the photo's width the right edge of the last one.
"""

_EDGE_TOLERANCE = 1e-3  # Pixels by which rounding may move a region out of the photo.
_SUM_TOLERANCE = 0.01  # Of a map's sum, which is 1; that of weights of half precision.


def check_maps(
    attention: npt.ArrayLike, words: Sequence[str] | None = None
) -> npt.NDArray[np.float64]:
    """Attention maps (T, rows, columns) as float64, checked to be weights that sum to 1.

    words: of the caption, T as well.
    """
    maps = np.asarray(attention, dtype=np.float64)
    if maps.ndim != 3 or maps.size == 0:
        raise ValueError(f"attention must have shape (T, rows, columns), not {maps.shape}")
    for position, weights in enumerate(maps):
        if not (weights >= 0).all() or abs(weights.sum() - 1) > _SUM_TOLERANCE:
            raise ValueError(f"attention map {position} is not of weights >= 0 that sum to 1")
    if words is not None and len(maps) != len(words):
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

    First and end are equal for a region that contains none, as the crop of a very long photo.
    """
    left, top, right, bottom = (math.ceil(edge - 0.5) for edge in region)
    return left, top, right, bottom


def fit(
    photo: Image.Image, region: Region, longest_side: int, enlarge: bool = True
) -> tuple[Image.Image, Region]:
    """Resize a photo, and its region, to `longest_side` pixels on the longer side; as RGB.

    The aspect ratio is kept to the nearest pixel. enlarge: False keeps a smaller photo's size.
    """
    left, top, right, bottom = check_region(region, photo.size)
    rgb = photo if photo.mode == "RGB" else photo.convert("RGB")
    scale = longest_side / max(photo.size)
    scale = scale if enlarge else min(scale, 1.0)
    width, height = (max(1, round(side * scale)) for side in photo.size)
    across, down = width / photo.width, height / photo.height
    scaled = (left * across, top * down, right * across, bottom * down)
    if (width, height) != photo.size:
        rgb = rgb.resize((width, height), Image.Resampling.LANCZOS)
    return rgb, scaled
