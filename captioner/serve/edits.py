"""Captions that people write on the served page, kept in a table that `write` and training read."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

from captioner.data.example import Problems
from captioner.data.table import text_records
from captioner.errors import UserError
from captioner.files import write_text
from captioner.serve.messages import Edit
from captioner.tables import csv_text

_COLUMNS = [*Edit.model_fields]


class Edits:
    """The table: a row for each photo. This process must have locked it.

    A photo is known by its digest, and by its name where the row or the edit has no digest. The
    file counts: what another program changed in it is read before the next edit.
    """

    def __init__(self, table: str) -> None:
        if Path(table).suffix.lower() != ".csv":
            raise UserError(f"--edits {table} is not a .csv, as edits are kept; name another file")
        self.table = table
        self._lock = Lock()  # Of the threads of requests.
        self._rows = self._read()
        if os.path.exists(table):
            try:
                self._replace(self._rows)
            except UserError as error:  # Such as a file that a container mounts by itself.
                advice = "--edits replaces its file: mount the folder, not the file alone"
                raise UserError(f"{error}; {advice}") from None

    @property
    def edits(self) -> list[Edit]:
        """All rows; those read before while the file cannot be read."""
        with self._lock, suppress(UserError):  # Which the next edit says.
            self._rows = self._read()
        return self._rows

    def save(self, edit: Edit) -> Edit:
        """Replace a photo's caption, or without a caption remove it, in the file first.

        Returns the row, with the folder of the one it replaces.
        """
        with self._lock:
            rows = self._read()
            earlier = _rows_of(edit, rows)
            image, known = edit.image, [row.image for row in earlier]
            if len(earlier) > 1:
                reason = "several photos have this name; send the photo_digest, too"
                raise UserError(f"image {image}: {reason}")
            if {*"/\\"} & {*image} and image not in known:
                raise UserError(f"image {image} names a folder; send the photo's name alone")
            new = edit.model_copy(update={"caption": " ".join(edit.caption.split())})
            place = len(rows)
            for row in earlier:
                new.photo_digest = new.photo_digest or row.photo_digest
                new.image = row.image if row.image.endswith(f"/{image}") else image
                place = rows.index(row)
            rows[place : place + 1] = [new] if new.caption else []
            self._replace(rows)
            self._rows = rows
            return new

    def _read(self) -> list[Edit]:
        """The rows of the file; none if it does not exist."""
        problems = Problems()
        records = text_records(Path(self.table), problems) if os.path.exists(self.table) else ()
        rows = [row if isinstance(row, dict) else {} for _, row in records]
        names = {row.get("photo_digest") or row.get("image") for row in rows}
        are_edits = all({"image", "caption"} <= row.keys() <= {*_COLUMNS} for row in rows)
        if problems or len(names) < len(rows) or not are_edits:
            reason = f"is not a table of {','.join(_COLUMNS)} with one caption a photo"
            raise UserError(f"{self.table} {reason}; mend it, or give --edits another file")
        return [Edit.model_construct(**row) for row in rows]

    def _replace(self, rows: list[Edit]) -> None:
        write_text(self.table, csv_text([vars(row) for row in rows], _COLUMNS))


def _rows_of(edit: Edit, rows: list[Edit]) -> list[Edit]:
    """The rows of an edit's photo: one by its digest, or else those of its name."""
    digest = edit.photo_digest
    by_digest = [row for row in rows if digest and row.photo_digest == digest]
    named = [row for row in rows if row.image == edit.image]
    return by_digest or [row for row in named if not (digest and row.photo_digest)]
