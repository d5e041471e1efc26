"""The log of a run: JSON lines and, if wanted, TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from PIL import Image

from captioner.errors import UserError
from captioner.files import read_text, refuse_os_errors, write_text

LOG, BOARD = "log.jsonl", "tensorboard"


class ShownExample(NamedTuple):
    """A model's output for one validation example, as text and picture."""

    name: str
    text: str
    picture: Image.Image | None = None


class RunLog:
    """Appends records to `log.jsonl` and TensorBoard, each with the `step` it was written after."""

    def __init__(self, folder: Path, resume_at: int | None = None, tensorboard: bool = False):
        """Open the log of a run in its folder.

        resume_at: the step at which a run is resumed; later records are removed, and hidden in
        TensorBoard, since they will be written again.
        """
        self._path, self._board_folder = folder / LOG, folder / BOARD
        self._board: Any = None
        if tensorboard:
            writer = summary_writer()
            with refuse_os_errors(f"cannot write {self._board_folder}"):
                purged = resume_at + 1 if resume_at else None
                self._board = writer(str(self._board_folder), purge_step=purged)
        kept = ""
        if resume_at is not None and self._path.exists():
            for line in read_text(self._path, "run log").split("\n"):
                try:
                    if json.loads(line)["step"] > resume_at:
                        continue
                except (ValueError, KeyError, TypeError):
                    continue  # A killed run may leave an incomplete last line.
                kept += line + "\n"
        write_text(self._path, kept)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record."""
        with refuse_os_errors(f"cannot write {self._path}"), self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.write_scalars(record)

    def write_scalars(self, record: dict[str, Any]) -> None:
        """Write the numbers of a record to TensorBoard alone, at the record's step."""
        if self._board is not None:
            with refuse_os_errors(f"cannot write {self._board_folder}"):
                for name, value in record.items():
                    if name != "step":
                        self._board.add_scalar(name, value, record["step"])
                self._board.flush()

    def show(self, examples: Sequence[ShownExample], step: int) -> None:
        """Write the model's outputs for some examples to TensorBoard."""
        with refuse_os_errors(f"cannot write {self._board_folder}"):
            for name, text, picture in examples:
                self._board.add_text(name, text, step)
                if picture is not None:
                    pixels = numpy.asarray(picture.convert("RGB"))
                    self._board.add_image(name, pixels, step, dataformats="HWC")
            self._board.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def summary_writer() -> Any:
    """Torch's writer for TensorBoard."""
    try:
        # Imported here: an optional package.
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "training.tensorboard needs the package tensorboard: "
            'pip install "captioner[tensorboard]"'
        ) from None
    return SummaryWriter
