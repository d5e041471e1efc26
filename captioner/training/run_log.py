"""The log of a run: JSON lines and TensorBoard."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from captioner.errors import refuse_missing
from captioner.files import read_text, refuse_os_errors, write_text

LOG, BOARD = "log.jsonl", "tensorboard"


class RunLog:
    """Appends records to `log.jsonl` and TensorBoard, each with its `step`.

    resume_at: later records, which will be written again, are removed, and hidden in TensorBoard.
    """

    def __init__(self, folder: Path, resume_at: int | None = None, tensorboard: bool = False):
        self._path = folder / LOG
        self._board = None
        if tensorboard:
            purged = resume_at + 1 if resume_at else None
            with refuse_os_errors(f"cannot write {folder / BOARD}"):
                self._board = summary_writer()(str(folder / BOARD), purge_step=purged)
        kept = []
        if resume_at is not None and os.path.exists(self._path):
            for line in read_text(self._path, "run log").split("\n"):
                # A killed run may leave an incomplete last line.
                with suppress(ValueError, KeyError, TypeError):
                    if json.loads(line)["step"] <= resume_at:
                        kept.append(f"{line}\n")
        write_text(self._path, "".join(kept))

    def write(self, record: Mapping[str, object], to_file: bool = True) -> None:
        """Append one record. to_file: not only for TensorBoard."""
        with refuse_os_errors(f"cannot write {self._path.parent}"):
            if to_file:
                with self._path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if self._board is not None:
                for name in record.keys() - {"step"}:
                    self._board.add_scalar(name, record[name], record["step"])
                self._board.flush()


def summary_writer() -> Any:
    """Torch's writer for TensorBoard."""
    with refuse_missing("training.tensorboard needs the package tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter
