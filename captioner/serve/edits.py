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
        self._rows: list[Edit] = []
        self._state: tuple[int, ...] = ()
        self._read_again()
        if self._state:
            try:
                self._replace(self._rows)
            except UserError as error:  # Such as a file that a container mounts by itself.
                advice = "--edits replaces its file: mount the folder, not the file alone"
                raise UserError(f"{error}; {advice}") from None

    @property
    def edits(self) -> list[Edit]:
        """All rows; those of the last edit while the file cannot be read."""
        with self._lock, suppress(UserError):  # Which the next edit says.
            self._read_again()
        return self._rows

    def save(self, edit: Edit) -> Edit:
        """Replace a photo's caption, or without a caption remove it, in the file first.

        Returns the row, with the folder of the one it replaces.
        """
        with self._lock:
            self._read_again()
            earlier = self._rows_of(edit)
            image, known = edit.image, [row.image for row in earlier]
            if len(earlier) > 1:
                reason = "several photos have this name; send the photo_digest, too"
                raise UserError(f"image {image}: {reason}")
            if {*"/\\"} & {*image} and image not in known:
                raise UserError(f"image {image} names a folder; send the photo's name alone")
            new = edit.model_copy(update={"caption": " ".join(edit.caption.split())})
            rows = [*self._rows, new]
            for row in earlier:
                new.photo_digest = new.photo_digest or row.photo_digest
                new.image = row.image if row.image.endswith(f"/{image}") else image
                rows = [new if each is row else each for each in self._rows]
            rows = [row for row in rows if row.caption]
            if rows != self._rows:
                self._replace(rows)
            self._rows = rows
            return new

    def _rows_of(self, edit: Edit) -> list[Edit]:
        digest = edit.photo_digest
        by_digest = [row for row in self._rows if digest and row.photo_digest == digest]
        named = [row for row in self._rows if row.image == edit.image]
        return by_digest or [row for row in named if not (digest and row.photo_digest)]

    def _read_again(self) -> None:
        """Read the file if it is not as this process left it."""
        state = self._file_state()
        if state == self._state:
            return
        problems = Problems()
        records = text_records(Path(self.table), problems) if state else ()
        rows = [row if isinstance(row, dict) else {} for _, row in records]
        names = {row.get("photo_digest") or row.get("image") for row in rows}
        are_edits = all({"image", "caption"} <= row.keys() <= {*_COLUMNS} for row in rows)
        if problems or len(names) < len(rows) or not are_edits:
            reason = f"is not a table of {','.join(_COLUMNS)} with one caption a photo"
            raise UserError(f"{self.table} {reason}; mend it, or give --edits another file")
        self._rows = [Edit.model_construct(**row) for row in rows]
        self._state = state

    def _replace(self, rows: list[Edit]) -> None:
        write_text(self.table, csv_text([vars(row) for row in rows], _COLUMNS))
        self._state = self._file_state()

    def _file_state(self) -> tuple[int, ...]:
        """Size, time and number of the file; empty of one that does not exist."""
        with suppress(FileNotFoundError):
            status = os.stat(self.table)
            return status.st_size, status.st_mtime_ns, status.st_ino
        return ()
