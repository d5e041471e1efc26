"""Measures attention maps: how wide they are, how they move, whether they lie on a thing.

Mass inside: Liu, Mao, Sha and Yuille 2017, *Attention Correctness in Neural Image Captioning*,
section 3.2. Pointing game: Zhang, Lin, Brandt, Shen and Sclaroff 2016, *Top-down Neural Attention
by Excitation Backprop*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    """Entropy of each map (..., rows, columns), in nats: (...,).

    0 for attention to one place, log L for even attention to L places. Its exponential is the
    effective number of places.
    """
    return _entropy(_distributions(attention))


def divergences(attention: ArrayLike) -> Floats:
    """The divergence of the maps (T, rows, columns) of every two words: (T * (T - 1) / 2,).

    Jensen-Shannon, in bits: 0 for equal maps, 1 for maps without a common place.
    Lin 1991, *Divergence Measures Based on the Shannon Entropy*.
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


class TargetCells(NamedTuple):
    """A target on the grid of a map.

    coverage: (rows, columns), the share of each cell's area, 0 to 1, that lies in the target.
    centres: (rows, columns) boolean, whether the cell's centre does.
    """

    coverage: Floats
    centres: NDArray[np.bool_]

    @property
    def share(self) -> float:
        """The share, 0 to 1, of the map's area that lies in the target."""
        return float(self.coverage.mean())


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
    # In cells of the map.
    across = _Axis(columns, photo_size[0] / target.size[0], region[0], region[2])
    down = _Axis(rows, photo_size[1] / target.size[1], region[1], region[3])
    boxes = [
        (across.cells(left), down.cells(top), across.cells(right), down.cells(bottom))
        for left, top, right, bottom in target.boxes
    ]
    x_cuts = across.cuts([edge for box in boxes for edge in box[::2]], target.size[0], target.mask)
    y_cuts = down.cuts([edge for box in boxes for edge in box[1::2]], target.size[1], target.mask)
    # Nothing changes between two cuts, so the middle of a piece decides for all of it.
    inside = _inside(target, boxes, across, down, _middles(x_cuts), _middles(y_cuts))
    coverage = _shares(y_cuts, rows) @ inside @ _shares(x_cuts, columns).T  # (rows, columns)
    if coverage.sum() <= 1e-9:
        return None
    middles = (_middles(np.arange(columns + 1.0)), _middles(np.arange(rows + 1.0)))
    centres = _inside(target, boxes, across, down, *middles)
    return TargetCells(np.clip(coverage, 0.0, 1.0), centres)


@dataclass(frozen=True)
class _Axis:
    """Converts a coordinate of the target's picture to cells of the map, along one side.

    count: cells. scale: pixels of the photo for one of the target's picture. first, last: edges
    of the region in pixels of the photo.
    """

    count: int
    scale: float
    first: float
    last: float

    def cells(self, coordinate: float) -> float:
        """Pixels of the target's picture -> cells from the edge."""
        return (coordinate * self.scale - self.first) / (self.last - self.first) * self.count

    def pixels(self, cells: Floats) -> Floats:
        """Cells from the edge -> pixels of the target's picture."""
        return (self.first + cells / self.count * (self.last - self.first)) / self.scale

    def cuts(self, edges: list[float], size: int, mask: NDArray[np.bool_] | None) -> Floats:
        """The edges within the map of cells, boxes and the mask's pixels."""
        found = np.concatenate([np.arange(self.count + 1.0), np.asarray(edges, dtype=np.float64)])
        if mask is not None:
            found = np.concatenate([found, self.cells(np.arange(size + 1.0))])  # type: ignore[arg-type]
        return np.unique(np.clip(found, 0.0, self.count))


def _middles(cuts: Floats) -> Floats:
    return (cuts[1:] + cuts[:-1]) / 2


def _shares(cuts: Floats, cells: int) -> Floats:
    """The share (cells, pieces) of each cell that each piece between two cuts takes."""
    belongs = np.floor(_middles(cuts)).astype(np.int64)  # (pieces,)
    shares = np.zeros((cells, len(belongs)))
    shares[belongs, np.arange(len(belongs))] = np.diff(cuts)
    return shares


def _inside(
    target: Target, boxes: list[Box], across: _Axis, down: _Axis, x: Floats, y: Floats
) -> NDArray[np.bool_]:
    """Whether (y, x) points, in cells, lie in the target."""
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for left, top, right, bottom in boxes:
        inside |= np.outer((top <= y) & (y < bottom), (left <= x) & (x < right))
    if target.mask is not None:
        width, height = target.size
        column = np.floor(across.pixels(x)).astype(np.int64)
        row = np.floor(down.pixels(y)).astype(np.int64)
        here = np.outer((row >= 0) & (row < height), (column >= 0) & (column < width))
        row, column = np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)
        inside |= here & target.mask[row[:, None], column]
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
