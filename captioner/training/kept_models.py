"""The models of the last few validations, kept beside the best one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

MODELS = "models"
"""In a run's folder: the folder of these models, each in a folder `epoch-N`."""

_NAME = re.compile(r"epoch-(\d+)")


def keep_model(folder: Path, epoch: int, count: int, save: Callable[[Path], None]) -> None:
    """Save the model of an epoch, and delete all but the last `count` up to this one.

    folder: of the run. epoch: counted from 1. save: writes the model into the folder it is given.
    Raises `UserError` as `save` does; then no other is deleted.
    """
    models = folder / MODELS
    save(models / f"epoch-{epoch:03}")
    epochs = {
        int(match[1]): path for path in models.iterdir() if (match := _NAME.fullmatch(path.name))
    }
    for number in sorted(number for number in epochs if number <= epoch)[:-count]:
        shutil.rmtree(epochs[number], ignore_errors=True)
