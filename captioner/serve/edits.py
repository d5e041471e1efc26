"""Captions that people write on the served page, kept in a table that training reads."""

import os
from pathlib import Path
from threading import Lock

from captioner.data.example import Problems
from captioner.data.table import text_records
from captioner.errors import UserError
from captioner.files import write_text
from captioner.tables import csv_text

_COLUMNS = ["image", "caption"]


class Edits:
    """The table, with one caption for each photo's name. This process must have locked it."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._lock = Lock()  # Of the threads of requests.
        problems = Problems()
        records = text_records(Path(table), problems) if os.path.exists(table) else ()
        rows = [row if isinstance(row, dict) else {} for _, row in records]
        names = {row.get("image") for row in rows}
        if problems or len(names) < len(rows) or any([*row] != _COLUMNS for row in rows):
            reason = "is not a table of image,caption with one caption a photo"
            raise UserError(f"{table} {reason}; give --edits another file")
        self.captions: dict[str, str] = {row["image"]: row["caption"] for row in rows}

    def save(self, image: str, caption: str) -> None:
        """Replace a photo's caption, or without a caption remove it, in the file first."""
        if image not in self.captions and Path(image).name != image:
            raise UserError(f"image {image} names a folder; send the photo's name alone")
        with self._lock:
            captions = {**self.captions, image: caption}
            kept = {name: text for name, text in captions.items() if text}
            rows = [{"image": name, "caption": text} for name, text in kept.items()]
            write_text(self.table, csv_text(rows, _COLUMNS))
            self.captions = kept
