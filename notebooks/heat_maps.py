"""Heat maps with numbers in their cells, drawn on axes of matplotlib."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

_ABOVE, _BELOW, _ZERO, _INK, _LINE = "#1f5fd0", "#c2410c", "#ffffff", "#181a1f", "#d9d9d4"
_DARK = 0.55  # Fraction of the full colour above which numbers in a cell are white.


def draw_heat_map(
    axis: Axes,
    values: npt.ArrayLike,
    columns: Sequence[str] = (),
    rows: Sequence[str] = (),
    full: float = 1.0,
    numbers: str = "",
    tilt: float = 60.0,
) -> None:
    """Draw values (rows, columns): white is 0, blue positive, orange negative.

    columns, rows: labels; empty for none. tilt: rotation of those of columns, in degrees.
    full: positive value at which the colour saturates.
    numbers: format, such as `.2f`, of the value written into each cell; "" for none.
    """
    cells = np.asarray(values, dtype=float)
    colours = LinearSegmentedColormap.from_list("values", [_BELOW, _ZERO, _ABOVE])
    axis.imshow(cells, cmap=colours, vmin=-full, vmax=full, aspect="auto", interpolation="nearest")
    style: dict[str, Any] = {"parse_math": False}  # Dollar signs are text, not a formula.
    axis.set_yticks(range(len(rows)), rows, **style)
    style |= {"rotation": tilt, "rotation_mode": "anchor", "ha": "left" if tilt else "center"}
    axis.set_xticks(range(len(columns)), columns, **style)
    axis.xaxis.tick_top()
    axis.set_xticks(np.arange(cells.shape[1] + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(cells.shape[0] + 1) - 0.5, minor=True)
    axis.grid(which="minor", color=_LINE, linewidth=0.5, clip_on=False)  # The outermost lines too.
    axis.tick_params(which="both", length=0)
    axis.spines[:].set_visible(False)
    if numbers:
        for (row, column), value in np.ndenumerate(cells):
            ink = _ZERO if abs(value) > _DARK * full else _INK
            axis.text(column, row, format(value, numbers), ha="center", va="center", color=ink)
