"""Measures attention maps: how wide they are, how they move, whether they lie on a thing.

Mass inside: Liu, Mao, Sha and Yuille 2017, *Attention Correctness in Neural Image Captioning*,
section 3.2. Pointing game: Zhang, Lin, Brandt, Shen and Sclaroff 2016, *Top-down Neural Attention
by Excitation Backprop*.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from captioner.data.instances import Box, Target

CENTRE_PRIOR_WIDTH = 1 / 4
"""Standard deviation of the centre prior, as a share of each side of the map."""

_TIE = 1e-6
"""Two weights this close, as a share of the larger, are the same: the maps are float32."""

Floats = NDArray[np.float64]


def entropy(attention: ArrayLike) -> Floats:
    """Entropy of each map (..., rows, columns), in nats: (...,); log L for even attention.

    Its exponential is the effective number of places.
    """
    return _entropy(_distributions(attention))


def divergences(attention: ArrayLike) -> Floats:
    """The divergence of the maps (T, rows, columns) of every two words: (T * (T - 1) / 2,).

    Jensen-Shannon (Lin 1991, *Divergence Measures Based on the Shannon Entropy*), in bits: 0 for
    equal maps, 1 for maps without a common place.
    """
    maps = _distributions(attention)  # (T, L)
    first, second = np.triu_indices(len(maps), k=1)
    own = _entropy(maps)  # (T,)
    middle = _entropy((maps[first] + maps[second]) / 2)
    nats = middle - (own[first] + own[second]) / 2
    return np.asarray(np.clip(nats / np.log(2), 0.0, 1.0))


def mass_inside(attention: ArrayLike, coverage: ArrayLike) -> Floats:
    """The share, 0 to 1, of each map's attention that lies in its target: (...,).

    attention: (..., rows, columns), not negative, not all zero; a map need not sum to one.
    coverage: (..., rows, columns), the share of each cell in the target.
    """
    weights = np.asarray(attention, dtype=np.float64)
    total = weights.sum(axis=(-2, -1))
    return np.asarray((weights * np.asarray(coverage)).sum(axis=(-2, -1)) / total)


def pointing(attention: ArrayLike, centres: ArrayLike) -> Floats:
    """Whether the most attended place of each map is in its target, 1 or 0: (...,).

    centres: (..., rows, columns) boolean, whether a cell's centre lies in the target.

    Cells that share the maximum share the hit, so even attention scores as a blind guess does.
    Stricter than Zhang et al. 2016, who accept 15 pixels beside the target.
    """
    weights = np.asarray(attention, dtype=np.float64)
    most = weights.max(axis=(-2, -1), keepdims=True)
    first = weights >= most * (1 - _TIE)  # (..., rows, columns)
    hits = first & np.asarray(centres, dtype=bool)
    return np.asarray(hits.sum(axis=(-2, -1)) / first.sum(axis=(-2, -1)))


def centre_prior(rows: int, columns: int) -> Floats:
    """The map (rows, columns) of always attending to the middle: a Gaussian, summing to one.

    It is integrated over each cell and cut off at the edges.
    """

    def bell(cells: int) -> Floats:
        edges = (np.arange(cells + 1) / cells - 0.5) / (CENTRE_PRIOR_WIDTH * math.sqrt(2))
        return np.diff([math.erf(edge) for edge in edges])

    bells = np.outer(bell(rows), bell(columns))  # (rows, columns)
    return np.asarray(bells / bells.sum())


class TargetCells(NamedTuple):
    """A target on the grid of a map.

    coverage: (rows, columns), the share of each cell's area, 0 to 1, that lies in the target.
    centres: (rows, columns) boolean, whether the cell's centre does.
    """

    coverage: Floats
    centres: NDArray[np.bool_]


def target_cells(
    target: Target, photo_size: tuple[int, int], region: Box, map_shape: tuple[int, int]
) -> TargetCells | None:
    """Lay a target on the cells of a map; None if it lies outside the map's region.

    photo_size: width and height, in pixels, of the captioned photo. The target's own picture may
        have another size and is stretched over the photo.
    region: the part of the photo that the map covers, in its pixels, as `Caption.region`.
    map_shape: rows and columns of the map.

    Exact: the union of the boxes and of the mask's square pixels.
    """
    rows, columns = map_shape
    left, top, right, bottom = region
    # The edges of the cells, and of the pieces in which nothing changes, in the target's pixels.
    x_edges = np.linspace(left, right, columns + 1) * (target.size[0] / photo_size[0])
    y_edges = np.linspace(top, bottom, rows + 1) * (target.size[1] / photo_size[1])
    x_cuts = _cuts(x_edges, target, 0)
    y_cuts = _cuts(y_edges, target, 1)
    inside = _inside(target, _middles(x_cuts), _middles(y_cuts))
    coverage = _shares(y_cuts, y_edges) @ inside @ _shares(x_cuts, x_edges).T  # (rows, columns)
    if coverage.sum() <= 1e-9:
        return None
    centres = _inside(target, _middles(x_edges), _middles(y_edges))
    return TargetCells(np.clip(coverage, 0.0, 1.0), centres)


def _cuts(edges: Floats, target: Target, axis: int) -> Floats:
    """The edges of cells, boxes and the mask's pixels along an axis, x or y, within the map."""
    of_boxes = [edge for box in target.boxes for edge in box[axis::2]]
    of_pixels = np.arange(0.0 if target.mask is None else target.size[axis] + 1.0)
    return np.unique(np.clip(np.concatenate([edges, of_boxes, of_pixels]), edges[0], edges[-1]))


def _middles(cuts: Floats) -> Floats:
    return (cuts[1:] + cuts[:-1]) / 2


def _shares(cuts: Floats, edges: Floats) -> Floats:
    """The share (cells, pieces) of each cell that each piece between two cuts takes."""
    cell = np.searchsorted(edges, _middles(cuts), side="right") - 1  # (pieces,)
    shares = np.zeros((len(edges) - 1, len(cell)))
    shares[cell, np.arange(len(cell))] = np.diff(cuts) / np.diff(edges)[cell]
    return shares


def _inside(target: Target, x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Whether (y, x) points of the target's picture lie in the target."""
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for left, top, right, bottom in target.boxes:
        inside |= np.outer((top <= y) & (y < bottom), (left <= x) & (x < right))
    if target.mask is not None:
        row, column = (
            np.clip(np.floor(each).astype(np.int64), 0, size - 1)
            for each, size in zip((y, x), target.mask.shape, strict=True)
        )
        inside |= target.mask[row[:, None], column]
    return inside


def _distributions(attention: ArrayLike) -> Floats:
    """Maps (..., rows, columns) -> (..., L), each summing to one."""
    maps = np.asarray(attention, dtype=np.float64)
    flat = maps.reshape(*maps.shape[:-2], -1)
    return np.asarray(flat / flat.sum(axis=-1, keepdims=True))


def _entropy(distributions: Floats) -> Floats:
    """(..., L) -> (...,), in nats."""
    logarithms = np.log(np.where(distributions > 0, distributions, 1.0))
    return np.asarray(-(distributions * logarithms).sum(axis=-1))
