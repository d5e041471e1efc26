"""Checks the maps passed to the renderers.

A violation is a mistake of the calling program, not of a user, so it raises `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SUM_TOLERANCE = 0.01
"""Largest deviation of a map's sum from 1; half-precision weights reach about this accuracy."""


def check_maps(attention: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return attention maps (T, rows, columns) as float64.

    Raises `ValueError` for what is no array of numbers, another shape, no cells, and a map with a
    weight that is NaN or negative, or with weights that do not sum to 1.
    """
    try:
        maps = np.asarray(attention).astype(np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError("attention is no array of numbers (T, rows, columns)") from None
    if maps.ndim != 3 or maps.size == 0:
        raise ValueError(f"attention must have shape (T, rows, columns), not {maps.shape}")
    for position, weights in enumerate(maps):
        if not (weights >= 0).all() or abs(weights.sum() - 1) > SUM_TOLERANCE:
            raise ValueError(f"attention map {position} is not of weights >= 0 that sum to 1")
    return maps


def check_attention(words: Sequence[str], attention: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the maps of a caption (T, rows, columns) as float64, one for each of the T `words`.

    Raises `ValueError` as `check_maps` does, and if the numbers of words and maps differ.
    """
    maps = check_maps(attention)
    if len(maps) != len(words):
        raise ValueError(f"there are {len(words)} words but {len(maps)} attention maps")
    return maps
