"""Keeps the models of the last validations, beside the best one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

MODELS = "models"
"""Folder of these models in a run's folder; each is in a folder `epoch-N`."""

_NAME = re.compile(r"epoch-(\d+)")


def keep_model(folder: Path, epoch: int, count: int, save: Callable[[Path], None]) -> None:
    """Save the model of an epoch, and delete all but the last `count` models up to this one.

    folder: the run's. epoch: counted from 1. save: saves the model to the given folder.
    Raises `UserError` as `save` does, and deletes nothing then.
    """
    models = folder / MODELS
    save(models / f"epoch-{epoch:03}")
    epochs = {
        int(match[1]): path for path in models.iterdir() if (match := _NAME.fullmatch(path.name))
    }
    for number in sorted(number for number in epochs if number <= epoch)[:-count]:
        shutil.rmtree(epochs[number], ignore_errors=True)
