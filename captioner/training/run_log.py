"""The log of a run: JSON lines and TensorBoard."""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from captioner.arrays import Array
from captioner.errors import refuse_missing
from captioner.files import JsonObject, read_text, refuse_os_errors, write_text

LOG, BOARD = "log.jsonl", "tensorboard"


class RunLog:
    """Appends records to `log.jsonl` and TensorBoard, each with its `step`.

    resume_at: a step; later records, which will be written again, are removed, and hidden in
        TensorBoard. -1 begins anew.
    kept: the earlier ones.
    """

    def __init__(self, folder: Path, resume_at: int = -1, tensorboard: bool = False):
        self._path = folder / LOG
        self._board = None
        if tensorboard:
            with refuse_os_errors(f"cannot write {folder / BOARD}"):
                self._board = summary_writer()(str(folder / BOARD), purge_step=resume_at + 1)
        self.kept = [record for record in read_log(folder) if record["step"] <= resume_at]
        write_text(self._path, "".join(f"{json.dumps(record)}\n" for record in self.kept))

    def write(self, record: Mapping[str, object], to_file: bool = True) -> None:
        """Append one record. to_file: not only for TensorBoard."""
        with refuse_os_errors(f"cannot write {self._path.parent}"):
            if to_file:
                with self._path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if self._board is not None:
                for name, value in record.items():
                    if isinstance(value, (int, float)) and name != "step":
                        self._board.add_scalar(name, value, record["step"])
                self._board.flush()

    def show(self, pictures: Mapping[str, Array], step: int) -> None:
        """Add pictures (height, width, 3) by name, to TensorBoard alone."""
        with refuse_os_errors(f"cannot write {self._path.parent}"):
            for name, picture in pictures.items():
                if self._board is not None:
                    self._board.add_image(name, picture, step, dataformats="HWC")


def read_log(folder: Path, name: str = "step") -> list[JsonObject]:
    """The records of a run's log with the field `name`: a score is in those with a validation.

    None without a log, and none of an incomplete line, which a killed run may leave.
    """
    path = folder / LOG
    lines = read_text(path, "run log").split("\n") if os.path.exists(path) else []
    records = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            if record["step"] >= 0 and name in record:
                records.append(record)
    return records


def deciding_scores(scores: Mapping[str, float], name: str) -> list[float]:
    """The score `name` of a validation, then minus its perplexity, which decides ties.

    The greater list is of the better model; of equal ones, the earlier.
    """
    return [scores[name], -scores.get("perplexity", 0.0)]


def best_record(records: Iterable[JsonObject], score: str) -> JsonObject:
    """The record of the validation whose model was kept; empty without a validation."""
    validations = (record for record in records if score in record)
    return max(validations, key=lambda record: deciding_scores(record, score), default={})


def summary_writer() -> Any:
    """Torch's writer for TensorBoard."""
    with refuse_missing("training.tensorboard needs the package tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter
