"""Heat maps; alignments as such: source words across the top, target words down the side."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from captioner.errors import UserError
from captioner.render.page import escaped, web_page
from captioner.render.save import PLOT_SUFFIXES, check_suffix, save_figure
from captioner.render.typography import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL_INCHES, _LONGEST_INCHES = 0.32, 60.0

_FONTS = (
    *("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Droid Sans Fallback"),
    *("WenQuanYi Zen Hei", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI", "Tahoma"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Arial Unicode MS", "STIXGeneral"),
)
"""matplotlib's own, then common ones for the letters that it lacks: Chinese, Japanese, Korean."""

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
    from matplotlib.colors import LinearSegmentedColormap  # Imported here: half a second.

    cells = np.asarray(values, dtype=float)
    colours = LinearSegmentedColormap.from_list("values", [_BELOW, _ZERO, _ABOVE])
    axis.imshow(cells, cmap=colours, vmin=-full, vmax=full, aspect="auto", interpolation="nearest")
    style: dict[str, Any] = {"parse_math": False}  # Dollar signs are text, not a formula.
    axis.set_yticks(range(len(rows)), list(map(printable, rows)), **style)
    style |= {"rotation": tilt, "rotation_mode": "anchor", "ha": "left" if tilt else "center"}
    axis.set_xticks(range(len(columns)), list(map(printable, columns)), **style)
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


class Alignment(NamedTuple):
    """Attention of T target tokens or words over S of the source. weights: (T, S), at least 0."""

    source: Sequence[str]
    target: Sequence[str]
    weights: Any


def save_heat_map(path: str | os.PathLike[str], alignment: Alignment) -> str:
    """Draw a heat map with words on both axes; white is 0, full colour is 1.

    Returns the distinct letters that the fonts here lack, which are drawn as boxes.
    """
    check_suffix(path, PLOT_SUFFIXES)
    if not alignment.target or not alignment.source:
        raise UserError(f"cannot draw {path}: the translation is empty")
    # Imported here: matplotlib takes half a second. Its pyplot would need a display.
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    weights = np.asarray(alignment.weights, dtype=float)  # (T, S)
    height, width = (min(_LONGEST_INCHES, 2 + _CELL_INCHES * count) for count in weights.shape)
    figure = Figure(figsize=(width, height), layout="constrained")
    axis = figure.subplots()
    draw_heat_map(axis, weights, alignment.source, alignment.target)
    installed = {font.name for font in fontManager.ttflist}
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_fontfamily([name for name in _FONTS if name in installed])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # One for each letter that a font lacks.
        save_figure(path, figure, bbox_inches="tight", pad_inches=0.1)
    missing = (re.match(r"Glyph (\d+)", str(warning.message)) for warning in caught)
    return "".join(sorted({chr(int(match[1])) for match in missing if match}))


def alignment_page(alignments: Sequence[tuple[str, Alignment]]) -> str:
    """A standalone page with a heat map for each item; a tooltip shows a cell's weight."""
    sections = [
        _section(number, heading, alignment)
        for number, (heading, alignment) in enumerate(alignments, start=1)
    ]
    return web_page("Alignments", ("alignment_page.css",), "\n".join(sections) + "\n")


def _section(number: int, heading: str, alignment: Alignment) -> str:
    source, target, weights = alignment
    heads = "".join(f"<th scope=col><span>{escaped(word)}</span></th>" for word in source)
    rows = ""
    for written, row in zip(map(escaped, target), np.asarray(weights, dtype=float), strict=True):
        rows += f"<tr><th scope=row>{written}</th>"
        for word, weight in zip(map(escaped, source), row, strict=True):
            title = f"{written} - {word}: {weight:.3f}"
            rows += f'<td style="--w:{min(1.0, weight):.3f}" title="{title}"></td>'
        rows += "</tr>"
    table = f"<table><tr><td></td>{heads}</tr>{rows}</table>" if rows else ""
    return f"<section><h2>{number}. {escaped(heading)}</h2>{table}</section>"
