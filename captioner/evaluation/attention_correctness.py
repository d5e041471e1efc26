"""Measures whether a word's attention lies on the thing that the word names.

Mass inside: Liu, Mao, Sha and Yuille 2017, *Attention Correctness in Neural Image Captioning*,
section 3.2. Pointing game: Zhang, Lin, Brandt, Shen and Sclaroff 2016, *Top-down Neural Attention
by Excitation Backprop*.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

CENTRE_PRIOR_WIDTH = 1 / 4
"""Standard deviation of the centre prior, as a share of each side of the map."""

_TIE = 1e-6
"""Two weights this close, as a share of the larger, are the same: the maps are float32."""

Floats = NDArray[np.float64]


def mass_inside(attention: ArrayLike, coverage: ArrayLike) -> Floats:
    """The share, 0 to 1, of each map's attention that lies in its target: (...,).

    attention: (..., rows, columns), not negative, not all zero; a map need not sum to one.
    coverage: (..., rows, columns), the share of each cell in the target. A cell half inside counts
        half. Even attention scores the mean of the coverage.

    Liu et al. 2017, section 3.2.
    """
    weights = np.asarray(attention, dtype=np.float64)
    total = weights.sum(axis=(-2, -1))
    return np.asarray((weights * np.asarray(coverage)).sum(axis=(-2, -1)) / total)


def pointing(attention: ArrayLike, centres: ArrayLike) -> Floats:
    """Whether the most attended place of each map is in its target, 1 or 0: (...,).

    attention: (..., rows, columns), as for `mass_inside`.
    centres: (..., rows, columns) boolean, whether a cell's centre lies in the target.

    Cells that share the maximum share the hit, so even attention scores the share of all centres
    that are inside, as a blind guess does. Stricter than Zhang et al. 2016, who accept 15 pixels
    beside the target.
    """
    weights = np.asarray(attention, dtype=np.float64)
    most = weights.max(axis=(-2, -1), keepdims=True)
    first = weights >= most * (1 - _TIE)  # (..., rows, columns)
    hits = first & np.asarray(centres, dtype=bool)
    return np.asarray(hits.sum(axis=(-2, -1)) / first.sum(axis=(-2, -1)))


def centre_prior(rows: int, columns: int) -> Floats:
    """The map (rows, columns) of always attending to the middle.

    A Gaussian around the centre with a standard deviation of `CENTRE_PRIOR_WIDTH` of each side,
    integrated over each cell, cut off at the edges and summing to one.
    """
    bell = np.outer(_bell(rows), _bell(columns))  # (rows, columns)
    return np.asarray(bell / bell.sum())


def _bell(cells: int) -> Floats:
    edges = (np.arange(cells + 1) / cells - 0.5) / (CENTRE_PRIOR_WIDTH * math.sqrt(2))
    return np.diff([math.erf(edge) for edge in edges])
