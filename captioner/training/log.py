"""The log of a run: a JSON object a line, one a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captioner.files import read_text, refuse_os_errors, write_text


class RunLog:
    """Appends records to a JSONL file, each with the `step` after which it was written."""

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        """Open the log of a new or a resumed run.

        resume_at: the step at which a run is resumed; later records are removed, since they will
        be written again. Raises `UserError` when the file cannot be written.
        """
        self.path = path
        kept = ""
        if resume_at is not None and path.exists():
            for line in read_text(path, "run log").split("\n"):
                try:
                    if json.loads(line)["step"] > resume_at:
                        continue
                except (ValueError, KeyError, TypeError):
                    continue  # A killed run may leave an incomplete last line.
                kept += line + "\n"
        write_text(path, kept)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record. Raises `UserError` when the file cannot be written."""
        with (
            refuse_os_errors(f"cannot write {self.path}"),
            self.path.open("a", encoding="utf-8") as file,
        ):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
