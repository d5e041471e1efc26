"""Tables as lines of text, as CSV, which spreadsheets open, and as Parquet."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import Any, TextIO

from captioner.errors import on_a_line, refuse_missing
from captioner.files import atomic_path, refuse_os_errors

Row = tuple[object, ...]  # A name, figures and a note.
AddRows = Callable[[Sequence[Mapping[str, object]]], None]

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")  # How formulas of spreadsheets begin.
_LATEX = {letter: f"\\{letter}" for letter in "#$%&_{}"}
_NAMES = ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar")
_LATEX |= {sign: f"\\text{name}{{}}" for sign, name in zip("\\~^<>|", _NAMES, strict=True)}
_LATEX |= {"[": "{[}", "*": "{*}"}  # Behind a line's end they are options of it.
_ROWS_OF_GROUP = 1000  # Rows of Parquet that are written together.


def csv_text(
    records: Sequence[Mapping[str, object]], columns: Sequence[str] = (), delimiter: str = ","
) -> str:
    """A header and a row for each record. columns: their keys; by default those of the first.

    An apostrophe precedes a text that is a formula to a spreadsheet, which could run programs.
    """
    table = io.StringIO()
    write_csv(table, records, columns or list(records[0]), delimiter)
    return table.getvalue()


def write_csv(
    file: TextIO, records: Iterable[Mapping[str, object]], columns: Sequence[str], delimiter: str
) -> None:
    """Write what `csv_text` gives."""
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_as_text(record.get(name)) for name in columns] for record in records)


def _as_text(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def cell_text(cell: str) -> str:
    """The text for which `csv_text` wrote a cell: without the apostrophe before a formula."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def text_table(rows: Sequence[Row]) -> str:
    """Rows as lines, in columns two spaces apart.

    A fraction has four decimals, a pair is an interval, None is "-"; of a dictionary the first ten
    items are shown, of a list the length. The last cell of a row widens no column.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    columns = zip_longest(*(row[:-1] for row in cells), fillvalue="")
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return "\n".join(lines)


def figures_table(figures: Mapping[str, object], notes: Mapping[str, object] | None = None) -> str:
    """Figures by name, underscores as spaces, as `text_table`. notes: the last cells, by name."""
    notes = notes or {}
    rows = [(name.replace("_", " "), value, notes.get(name, "")) for name, value in figures.items()]
    return text_table(rows)


def latex_table(records: Sequence[Mapping[str, object]], best: Mapping[str, object]) -> str:
    """Records as a LaTeX `tabular` with the rules of booktabs. best: values that are bold, by name.

    The cells are those of `text_table`, but columns without a text are on the right.
    """
    lines = [[latex_text(name) for name in records[0]]]
    for record in records:
        is_best = (name in best and cell == best[name] for name, cell in record.items())
        lines.append([*map(_latex_cell, record.values(), is_best)])
    columns = zip(*(record.values() for record in records), strict=True)
    kinds = ["l" if any(isinstance(cell, str) for cell in column) else "r" for column in columns]
    begin = f"% needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{''.join(kinds)}}}\n\\toprule"
    rows = [f"{' & '.join(line)} \\\\" for line in lines]
    end = "\\bottomrule\n\\end{tabular}\n"
    return "\n".join([begin, rows[0], r"\midrule", *rows[1:], end])


def _latex_cell(cell: object, is_best: bool) -> str:
    text = latex_text(_cell(cell))
    if isinstance(cell, (float, tuple)):
        text = text.replace("-", "$-$")
    return rf"\textbf{{{text}}}" if is_best else text


def latex_text(text: str) -> str:
    """The text with what steers LaTeX escaped."""
    return "".join(_LATEX.get(letter, letter) for letter in on_a_line(text))


def _cell(cell: object) -> str:
    if isinstance(cell, dict):
        return ", ".join(f"{name} {_cell(value)}" for name, value in islice(cell.items(), 10))
    if isinstance(cell, list):
        return str(len(cell))
    if isinstance(cell, tuple):
        return f"[{', '.join(map(_cell, cell))}]"
    if isinstance(cell, float):
        return f"{cell:.4f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return "-" if cell is None else str(cell)


def pyarrow_library() -> Any:
    """The module `pyarrow`, with `pyarrow.parquet`."""
    with refuse_missing("Parquet needs pyarrow", "shards"):
        import pyarrow.parquet
    return pyarrow


def _in_utf8(value: object) -> object:
    """The value; a text with surrogates, of a file name, as CSV has them, which Arrow refuses."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


@contextmanager
def parquet_table(path: str, types: Mapping[str, str]) -> Iterator[AddRows]:
    """Yields a function that adds rows; the file is complete at the end.

    types: pyarrow's, by column; one that ends in [] is of lists.
    """
    arrow = pyarrow_library()
    columns = {name: arrow.type_for_alias(kind.removesuffix("[]")) for name, kind in types.items()}
    lists = {name: arrow.list_(columns[name]) for name, kind in types.items() if "[]" in kind}
    schema = arrow.schema([*(columns | lists).items()])
    rows: list[Mapping[str, object]] = []

    def add(more: Sequence[Mapping[str, object]], at_least: int = _ROWS_OF_GROUP) -> None:
        rows.extend({name: _in_utf8(value) for name, value in row.items()} for row in more)
        if len(rows) >= at_least:
            with refuse_os_errors(f"cannot write {path}"):
                writer.write_table(arrow.Table.from_pylist(rows, schema))
            rows.clear()

    with atomic_path(path) as temporary, arrow.parquet.ParquetWriter(temporary, schema) as writer:
        yield add
        add([], at_least=1)
