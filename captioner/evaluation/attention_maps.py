"""How much of a word's attention lies in the box of the thing that the word names.

Liu, Mao, Sha and Yuille 2017, *Attention Correctness in Neural Image Captioning*, section 3.2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from captioner.data.boxes import Box, area, intersection
from captioner.errors import UserError


def mass_inside(attention_map: ArrayLike, box: Box, region: Box) -> float:
    """The share, 0 to 1, of a map's attention that lies inside a box.

    attention_map: (rows, columns), no negative entry, some positive; it need not sum to one.
    box: where the named thing is, in pixels of the photo.
    region: the part of the photo that the map covers, in the same pixels: all of it, or the crop
        that the model saw. What of the box lies outside counts nothing.

    A cell's attention is spread evenly over the cell, so that a cell half inside the box counts
    half. Even attention scores `box_share(box, region)`: what no attention at all is worth.

    Raises `UserError` for a map that is not as above, a box that is not finite, or a region
    without area.
    """
    weights = np.asarray(attention_map, dtype=np.float64)
    if weights.ndim != 2 or weights.size == 0:
        raise UserError(f"an attention map is of shape {weights.shape}, not (rows, columns)")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise UserError("an attention map has an entry that is negative or not a number")
    total = float(weights.sum())
    if total <= 0:
        raise UserError("an attention map is zero everywhere")
    _check(box, region)
    rows, columns = weights.shape
    down = _coverage(box[1], box[3], region[1], region[3], rows)  # (rows,)
    across = _coverage(box[0], box[2], region[0], region[2], columns)  # (columns,)
    return float(down @ weights @ across) / total


def box_share(box: Box, region: Box) -> float:
    """The share, 0 to 1, of a region's area that lies inside a box.

    Raises `UserError` for a box that is not finite or a region without area.
    """
    _check(box, region)
    return area(intersection(box, region)) / area(region)


def _coverage(start: float, end: float, first: float, last: float, cells: int) -> NDArray[Any]:
    """The fraction (cells,) of each cell between `first` and `last` lying in `start` to `end`."""
    size = (last - first) / cells
    edges = first + size * np.arange(cells + 1)
    overlap = np.minimum(edges[1:], end) - np.maximum(edges[:-1], start)
    return np.asarray(np.clip(overlap / size, 0.0, 1.0))


def _check(box: Box, region: Box) -> None:
    if not all(math.isfinite(edge) for edge in (*box, *region)):
        raise UserError(f"box {box} or region {region} has an edge that is not a number")
    if area(region) <= 0:
        raise UserError(f"region {region} has no area")
