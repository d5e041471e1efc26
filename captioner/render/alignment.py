"""Alignments as heat maps: the words read across the top, the words written down the side."""

from __future__ import annotations

import html
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from captioner.errors import UserError
from captioner.files import atomic_path, write_text
from captioner.render.families import families_for
from captioner.render.heat_map import draw_heat_map
from captioner.render.typography import printable

HEAT_MAP_SUFFIXES = (".png", ".pdf", ".svg")
"""Ends of file names that `save_heat_map` knows."""

_CELL_INCHES = 0.32
_LONGEST_INCHES = 60.0


@dataclass(frozen=True)
class AlignmentItem:
    """One sentence and its translation.

    source: the S words read. target: the T words written. weights: (T, S), where was looked for
    each, at least 0. text: the translation as it is written; a line above the heat map.

    Raises `ValueError` for weights of another shape.
    """

    source: Sequence[str]
    target: Sequence[str]
    weights: npt.ArrayLike
    text: str = ""

    def __post_init__(self) -> None:
        shape = np.asarray(self.weights).shape
        if shape != (len(self.target), len(self.source)):
            raise ValueError(
                f"weights {shape} are not of {len(self.target)} words written and "
                f"{len(self.source)} read"
            )


def save_heat_map(path: str | os.PathLike[str], item: AlignmentItem) -> str:
    """Draw a heat map with words on both axes; white is 0, the full colour is 1.

    Returns the letters, each once, that no font here has: boxes stand in their place.
    Raises `UserError` for an end of the name that is not one of `HEAT_MAP_SUFFIXES`, for an empty
    translation, of which there is nothing to draw, and when the file cannot be written.
    """
    check_heat_map_path(path)
    if not item.target or not item.source:
        raise UserError(f"cannot draw {path}: the translation is empty")
    # Imported here: matplotlib takes half a second, and its pyplot would want a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    weights = np.asarray(item.weights, dtype=float)  # (T, S)
    sides = (min(_LONGEST_INCHES, 2 + _CELL_INCHES * count) for count in weights.shape[::-1])
    width, height = sides
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    draw_heat_map(axis, weights, item.source, item.target)
    families, missing = families_for(printable("".join([*item.source, *item.target])))
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_fontfamily(families)
    with atomic_path(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # One for each letter that is missing.
        figure.savefig(temporary, dpi=150, bbox_inches="tight", pad_inches=0.1)
    return missing


def check_heat_map_path(path: str | os.PathLike[str]) -> None:
    """Raise `UserError` where `save_heat_map` would for the end of a file's name."""
    if Path(path).suffix.lower() not in HEAT_MAP_SUFFIXES:
        raise UserError(f"cannot write {path}: its name must end in {', '.join(HEAT_MAP_SUFFIXES)}")


def alignment_page(items: Sequence[AlignmentItem], title: str = "Alignments") -> str:
    """A self-contained page with a heat map for each item; pointing at a cell says its weight."""
    parts = [_section(number, item) for number, item in enumerate(items, start=1)]
    return _PAGE.format(title=html.escape(title), style=_STYLE, body="\n".join(parts))


def save_alignment_page(path: str | os.PathLike[str], items: Sequence[AlignmentItem]) -> None:
    """Write `alignment_page` to a file. Raises `UserError` when it cannot be written."""
    write_text(path, alignment_page(items))


def _section(number: int, item: AlignmentItem) -> str:
    heads = "".join(f"<th scope=col><span>{_word(word)}</span></th>" for word in item.source)
    weights = np.asarray(item.weights, dtype=float)  # (T, S)
    rows = "".join(
        f"<tr><th scope=row>{_word(word)}</th>{_cells(word, item.source, row)}</tr>"
        for word, row in zip(item.target, weights, strict=True)
    )
    table = f"<table><tr><td></td>{heads}</tr>{rows}</table>" if item.target else ""
    return f"<section><h2>{number}. {_word(item.text)}</h2>{table}</section>"


def _cells(word: str, source: Sequence[str], row: npt.NDArray[np.float64]) -> str:
    return "".join(
        f'<td style="--w:{min(1.0, weight):.3f}" title="{_word(word)} - {_word(read)}: '
        f'{weight:.3f}"></td>'
        for read, weight in zip(source, row, strict=True)
    )


def _word(text: str) -> str:
    return html.escape(printable(text))


_STYLE = """
:root { color-scheme: light dark; --ink: #181a1f; --line: #d9d9d4; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececea; --line: #343944; --paper: #14161a; }
}
body {
  margin: 1.5rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.4 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
section { overflow-x: auto; margin-bottom: 2rem; }
h2 { font-size: 1.05rem; }
table { border-collapse: collapse; }
th { font-weight: 400; text-align: right; padding: 0 .4rem; white-space: nowrap; }
th[scope=col] { vertical-align: bottom; padding: .2rem; }
th[scope=col] span { writing-mode: vertical-rl; transform: rotate(180deg); }
td[style] {
  width: 1.6rem; height: 1.6rem; border: 1px solid var(--line);
  background: color-mix(in srgb, #3b7bec calc(var(--w) * 100%), var(--paper));
}
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{style}</style></head>
<body>
{body}
</body></html>
"""
