"""Tables as CSV, which spreadsheets open."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a text that begins like that for a formula."""


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and rows of values.

    An apostrophe is put before a text that a spreadsheet would take for a formula, as a file name
    can be one that runs programs. JSON keeps the name as it is.
    """
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_as_text(value) for value in row] for row in rows)
    return table.getvalue()


def csv_records(records: Sequence[Mapping[str, object]]) -> str:
    """`csv_text` of one record or more, whose keys are the columns."""
    return csv_text(list(records[0]), (list(record.values()) for record in records))


def _as_text(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
