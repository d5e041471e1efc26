"""Upsamples a coarse attention map smoothly to pixels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from captioner.render.region import Region, pixels


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
    """
    left, top, right, bottom = region
    first_column, first_row, end_column, end_row = pixels(region)
    weights = np.asarray(attention_map, dtype=np.float64)
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
    from_centre = np.clip(positions - 0.5, 0, cells - 1)  # constant beyond the outermost centres
    distance = np.abs(from_centre[:, np.newaxis] - np.arange(-1, cells + 1))
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    spline = np.where(distance < 1, near, far)  # cubic B-spline
    spline[:, 1] += spline[:, 0]  # The outermost cells are repeated beyond the edge.
    spline[:, -2] += spline[:, -1]
    return spline[:, 1:-1]
