"""Figures as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

Row = tuple[object, ...]
"""A name, figures and a note."""


def text_table(rows: Sequence[Row]) -> str:
    """Rows as lines, in columns two spaces apart.

    A fraction has four decimals, a pair is an interval, and None is "-". The last cell of a row
    widens no column.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    columns = zip_longest(*(row[:-1] for row in cells), fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    lines = ("  ".join((*map(str.ljust, row[:-1], widths), row[-1])) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _cell(cell: object) -> str:
    if isinstance(cell, tuple):
        return f"[{', '.join(map(_cell, cell))}]"
    if isinstance(cell, float):
        return f"{cell:.4f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "-" if cell is None else str(cell)
