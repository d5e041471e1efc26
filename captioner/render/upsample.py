"""Upsamples a coarse attention map smoothly to pixels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from captioner.render.attention_checks import check_map
from captioner.render.region import Region, check_region, pixels


def place(
    attention_map: npt.ArrayLike, photo_size: tuple[int, int], region: Region
) -> npt.NDArray[np.float64]:
    """Upsample a map (rows, columns) to its region of a photo: (height, width).

    A pixel is a mean of the cells around it, weighted by a cubic B-spline, so that values keep
    their unit: a uniform map gives 1 / L everywhere. The spline is never negative and close to a
    Gaussian with a standard deviation of 0.58 cells. (Xu et al. 2015 drew their figures with
    scikit-image's `pyramid_expand`, a Gaussian of 0.83 cells.) Values are constant from the centres
    of the outermost cells to the edge.

    photo_size: width and height of the whole photo in pixels.
    region: the part the encoder saw. A pixel whose centre is outside is 0.

    Raises `ValueError` as `check_map` and `check_region` do.
    """
    weights = check_map(attention_map)
    region = check_region(region, photo_size)
    left, top, right, bottom = region
    first_column, first_row, end_column, end_row = pixels(region)
    rows, columns = weights.shape
    # Centres of the pixels in the map, in cells from its top left corner.
    down = (np.arange(first_row, end_row) + 0.5 - top) / (bottom - top) * rows
    across = (np.arange(first_column, end_column) + 0.5 - left) / (right - left) * columns
    placed = np.zeros((photo_size[1], photo_size[0]))
    placed[first_row:end_row, first_column:end_column] = (
        _spline_weights(rows, down) @ weights @ _spline_weights(columns, across).T
    )
    return placed


def _spline_weights(cells: int, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weight of each cell at each position: (positions, cells); rows sum to 1.

    positions: in cells from the outer edge of the first cell; the centre of cell i is at i + 0.5.
    """
    weights = np.zeros((len(positions), cells))
    from_centre = np.clip(positions - 0.5, 0, cells - 1)  # constant beyond the outermost centres
    nearest = np.floor(from_centre).astype(np.int64)
    for offset in (-1, 0, 1, 2):
        index = nearest + offset
        inside = np.clip(index, 0, cells - 1)  # the outermost cell is repeated beyond the edge
        share = _cubic_spline(from_centre - index)
        np.add.at(weights, (np.arange(len(positions)), inside), share)
    return weights


def _cubic_spline(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The cubic B-spline of width 4; its copies at integer distances sum to 1."""
    size = np.abs(distance)
    near = 2 / 3 - size**2 + size**3 / 2
    far = np.clip(2 - size, 0, None) ** 3 / 6
    return np.where(size < 1, near, far)
