"""Checks the words and maps passed to the renderers.

A violation is a mistake of the calling program, not of a user, so it raises `ValueError`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SUM_TOLERANCE = 0.01
"""Largest deviation of a map's sum from 1; half-precision weights reach about this accuracy."""


def check_map(attention_map: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return one attention map (rows, columns) as float64.

    Raises `ValueError` if it has another number of dimensions, no cells, a weight that is NaN,
    infinite or negative, or weights that do not sum to 1.
    """
    weights = _as_float64(attention_map)
    if weights.ndim != 2 or weights.size == 0:
        raise ValueError(f"an attention map must have shape (rows, columns), not {weights.shape}")
    _check_weights(weights[np.newaxis])
    return weights


def check_attention(words: Sequence[str], attention: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the maps of a caption (T, rows, columns) as float64, one for each of the T `words`.

    Raises `ValueError` as `check_map` does for each map, and if there are no words, a word is
    empty, or the numbers of words and maps differ.
    """
    if isinstance(words, str):
        raise ValueError("words must be a sequence of words, not one string")
    if len(words) == 0:
        raise ValueError("there must be at least one word to draw")
    for position, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"word {position} is {word!r}, but every word must have characters")
    weights = _as_float64(attention)
    if weights.ndim != 3 or weights.shape[1] == 0 or weights.shape[2] == 0:
        raise ValueError(f"attention must have shape (T, rows, columns), not {weights.shape}")
    if len(weights) != len(words):
        raise ValueError(f"there are {len(words)} words but {len(weights)} attention maps")
    _check_weights(weights)
    return weights


def check_strength(strength: float) -> float:
    """Return `strength`. Raises `ValueError` if it is not in [0, 1]."""
    if not 0.0 <= strength <= 1.0:
        raise ValueError(f"strength {strength} is not between 0 and 1")
    return float(strength)


def _as_float64(array: npt.ArrayLike) -> npt.NDArray[np.float64]:
    try:
        return np.asarray(array).astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"attention cannot be read as an array of numbers: {error}") from error


def _check_weights(maps: npt.NDArray[np.float64]) -> None:
    for position, weights in enumerate(maps):
        if not np.isfinite(weights).all():
            raise ValueError(f"attention map {position} holds a weight that is NaN or infinite")
        if (weights < 0).any():
            raise ValueError(f"attention map {position} holds a negative weight")
        total = float(weights.sum())
        if abs(total - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"attention map {position} adds up to {total:.4g} instead of 1")
