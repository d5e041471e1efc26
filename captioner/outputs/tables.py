"""Sinks of tables that are written at the end, also on Ctrl-C: JSON, CSV, Parquet.

Until then their rows are in a hidden file, not in memory. Without rows, a file there stays.
"""

import json
import sys
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, TextIO

from captioner import files
from captioner.files import JsonObject
from captioner.outputs.record import COLUMNS, PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.tables import parquet_table, pyarrow_library, write_csv


class Table(Sink):
    """Rows of one kind of file."""

    encoding = "utf-8"

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        self._kept: IO[str] = TemporaryFile("w+", encoding="ascii")  # noqa: SIM115
        self.is_empty = True

    def add(self, record: PhotoRecord) -> None:
        """Keep the rows of a record."""
        with files.refuse_os_errors(f"cannot write {self.path}"):
            self._kept.writelines(f"{json.dumps(row)}\n" for row in self.rows_of(record))
        self.is_empty = False

    def rows_of(self, record: PhotoRecord) -> Iterator[JsonObject]:
        """The rows of a record."""
        return record.rows()

    def close(self) -> None:
        """Write the table."""
        self._kept.seek(0)
        rows = map(json.loads, self._kept)
        if self.path == "-":
            self.write(sys.stdout, rows)
        elif not self.is_empty:
            with (
                files.atomic_path(self.path) as temporary,
                open(temporary, "w", -1, self.encoding, "backslashreplace", "") as file,
            ):
                self.write(file, rows)

    def write(self, file: TextIO, rows: Iterator[JsonObject]) -> None:
        """Write the rows that were kept."""
        raise NotImplementedError


class Json(Table):
    """A list of records."""

    def rows_of(self, record: PhotoRecord) -> Iterator[JsonObject]:
        """The record."""
        yield record.to_dict()

    def write(self, file: TextIO, rows: Iterator[JsonObject]) -> None:
        """Write the list."""
        before = "[\n  "
        for row in rows:
            text = json.dumps(row, indent=2, ensure_ascii=False)
            file.write(before + text.replace("\n", "\n  "))
            before = ",\n  "
        file.write("[]\n" if self.is_empty else "\n]\n")


class Csv(Table):
    """A row a caption, with the columns that have a value; for Excel, tabs and UTF-16."""

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        self._used = {*[*COLUMNS][:5]}
        if run.options.csv_for == "excel":  # It knows umlauts by the byte order mark.
            self.encoding = "utf-16"

    def rows_of(self, record: PhotoRecord) -> Iterator[JsonObject]:
        """Rows in which lists are texts."""
        for row in record.rows():
            words, scores = row["words"] or (), row["word_confidence"] or ()
            pairs = zip(words, scores, strict=False)
            scored = [f"{word} {score:.2f}" for word, score in pairs if score is not None]
            keywords = ", ".join(row["keywords"] or ())
            lists = {"words": " ".join(words), "keywords": keywords}
            row |= {**lists, "word_confidence": ", ".join(scored)}
            self._used.update(name for name, value in row.items() if value not in ("", None))
            yield row

    def write(self, file: TextIO, rows: Iterator[JsonObject]) -> None:
        """Write the header and the rows; Excel splits at tabs in any language."""
        columns = [name for name in COLUMNS if name in self._used]
        write_csv(file, rows, columns, "\t" if self.encoding == "utf-16" else ",")


class Parquet(Table):
    """The rows of CSV, with lists, and all columns."""

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        pyarrow_library()

    def close(self) -> None:
        """Write the rows."""
        self._kept.seek(0)
        if not self.is_empty:
            with parquet_table(self.path, COLUMNS) as add_rows:
                for line in self._kept:
                    add_rows([json.loads(line)])
