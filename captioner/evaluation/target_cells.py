"""The cells of an attention map that lie in the thing that a word names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioner.data.instances import Box, Target

Floats = NDArray[np.float64]


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
