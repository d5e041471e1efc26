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

FOLDER = "tensorboard"


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


class ShownExample(NamedTuple):
    """A model's output for one validation example, as text and picture."""

    name: str
    text: str
    picture: Image.Image | None = None


def summary_writer() -> Any:
    """Torch's writer for TensorBoard. Raises `UserError` when the package is missing."""
    try:
        # Imported here: an optional package.
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            "training.tensorboard needs the package tensorboard: "
            'pip install "captioner[tensorboard]"'
        ) from None
    return SummaryWriter


class TensorBoard:
    """Writes to the folder `tensorboard` of a run."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        """Open the folder.

        step: the step at which a run is resumed; TensorBoard hides records of later steps.
        Raises `UserError` when the package `tensorboard` is missing, or the folder cannot be made.
        """
        self._folder = folder / FOLDER
        make = summary_writer()
        with refuse_os_errors(f"cannot write {self._folder}"):
            self._writer: Any = make(str(self._folder), purge_step=step + 1 if step else None)

    def write(self, record: dict[str, Any]) -> None:
        """Write the numbers of a log record as scalars, at the record's step."""
        with refuse_os_errors(f"cannot write {self._folder}"):
            for name, value in record.items():
                if name != "step":
                    self._writer.add_scalar(name, value, record["step"])
            self._writer.flush()

    def show(self, examples: Sequence[ShownExample], step: int) -> None:
        """Write the model's outputs for some examples."""
        with refuse_os_errors(f"cannot write {self._folder}"):
            for name, text, picture in examples:
                self._writer.add_text(name, text, step)
                if picture is not None:
                    pixels = numpy.asarray(picture.convert("RGB"))
                    self._writer.add_image(name, pixels, step, dataformats="HWC")
            self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
