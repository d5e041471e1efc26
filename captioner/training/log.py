"""The log of a run: JSON lines and, if wanted, TensorBoard."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from captioner.errors import refuse_missing
from captioner.files import read_text, refuse_os_errors, write_text

LOG, BOARD = "log.jsonl", "tensorboard"


class RunLog:
    """Appends records to `log.jsonl` and TensorBoard, each with the `step` it was written after."""

    def __init__(self, folder: Path, resume_at: int | None = None, tensorboard: bool = False):
        """Open the log of a run in its folder.

        resume_at: the step at which a run is resumed; later records are removed, and hidden in
        TensorBoard, since they will be written again.
        """
        self._path, self._board = folder / LOG, None
        if tensorboard:
            writer = summary_writer()
            with refuse_os_errors(f"cannot write {folder / BOARD}"):
                purged = resume_at + 1 if resume_at else None
                self._board = writer(str(folder / BOARD), purge_step=purged)
        kept = ""
        if resume_at is not None and self._path.exists():
            for line in read_text(self._path, "run log").split("\n"):
                # A killed run may leave an incomplete last line.
                with suppress(ValueError, KeyError, TypeError):
                    kept += f"{line}\n" * (json.loads(line)["step"] <= resume_at)
        write_text(self._path, kept)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record, also for TensorBoard."""
        with refuse_os_errors(f"cannot write {self._path}"), self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.write_scalars(record)

    def write_scalars(self, record: dict[str, Any]) -> None:
        """Write a record for TensorBoard only."""
        if self._board is not None:
            with refuse_os_errors(f"cannot write {self._path.parent / BOARD}"):
                for name in record.keys() - {"step"}:
                    self._board.add_scalar(name, record[name], record["step"])
                self._board.flush()


def summary_writer() -> Any:
    """Torch's writer for TensorBoard."""
    with refuse_missing("training.tensorboard needs the package tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter
