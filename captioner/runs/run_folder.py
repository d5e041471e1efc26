"""Checks and locks a run folder."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

from captioner.errors import UserError
from captioner.files import folder_lock, read_json, remove_temporaries, write_json
from captioner.model_folders import MODEL
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.task import Recipe
from captioner.schema import flat, from_mapping, to_mapping
from captioner.training import CHECKPOINT, Engine, check_checkpoint, summary_writer

CONFIG = "config.json"
"""File in a run's folder: its recipe."""

RECORD = "environment.json"
"""File in a run's folder: versions, device and processes of each start and resume, in a list."""

CHANGEABLE = (
    "training.epochs",
    "training.patience",
    "training.checkpoint_seconds",
    "training.tensorboard",
    "training.compile",
    "validation.batch_size",
    "features.batch_size",
    "features.folder",
)
"""Fields that may change on resuming."""


@contextlib.contextmanager
def run_engine(device: torch.device | str) -> Iterator[Engine]:
    """Connects the processes of a run; only process 0 prints."""
    with Engine(device) as engine, contextlib.ExitStack() as kept:
        if not engine.is_main:
            kept.enter_context(contextlib.redirect_stdout(None))
        yield engine


@contextlib.contextmanager
def locked_run_folder(recipe: Recipe, folder: Path, resume: bool, engine: Engine) -> Iterator[None]:
    """Lock the folder and write the run's config and environment to it.

    Raises `UserError`, in one process, if another run has locked it, and as `check_folder` does.
    """
    with contextlib.ExitStack() as kept:
        with engine.fail_together():
            if engine.is_main:
                kept.enter_context(folder_lock(folder, "run"))
                for place in (folder, folder / MODEL):
                    remove_temporaries(place, age=0)
                # Again: another run may have ended meanwhile.
                check_folder(recipe, folder, resume, engine)
                _write_record(folder / RECORD, recipe.training.seed, engine, resume)
                write_json(folder / CONFIG, to_mapping(recipe))
        yield


def _write_record(path: Path, seed: int, engine: Engine, resumed: bool) -> None:
    before: Any = read_json(path, "record of the run") if resumed and path.exists() else []
    device = str(engine.device)
    if engine.device.type == "cuda":
        device = torch.cuda.get_device_name(engine.device)
    record = {
        "captioner": sys.modules[__name__.partition(".")[0]].__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "device": device,
        "processes": engine.world_size,
        "threads": torch.get_num_threads(),
        "seed": seed,
    }
    write_json(path, [*(before if isinstance(before, list) else []), record])


def check_folder(recipe: Recipe, folder: Path, resume: bool, engine: Engine) -> None:
    """Raise `UserError`, in process 0, if the folder holds a run that cannot be resumed.

    Without `resume`, that is any run. With it, a run whose recipe differs in a field that is not
    in `CHANGEABLE`, or in the number of epochs where training follows it, or whose checkpoint is
    damaged or of another number of processes. Raises it also for a missing package.
    """
    if engine.is_main and recipe.training.tensorboard:
        summary_writer()  # Its package may be missing.
    if not engine.is_main or not (folder / CHECKPOINT).exists():
        return
    if not resume:
        raise UserError(f"{folder} holds a run: give --resume to continue it, or another folder")
    path = folder / CONFIG
    mapping, now = read_json(path, "config of the run"), flat(to_mapping(recipe))
    if isinstance(mapping, dict) and mapping.get("task") != now.get("task"):
        raise UserError(f"cannot resume {folder}: its run is of another task; give another folder")
    try:
        saved = from_mapping(type(recipe), mapping, str(path))
    except UserError as error:  # Such as a field that is gone since.
        raise UserError(f"cannot resume {folder}, which another version made: {error}") from None
    before = flat(to_mapping(saved))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) == now.get(name):
            continue
        reason = _epochs_matter(saved) if name == "training.epochs" else ""
        if reason or name not in CHANGEABLE:
            raise UserError(
                f"cannot resume {folder}: it was made with {name} {before.get(name)!r}, "
                f"not {now.get(name)!r}{reason}; to keep what it was made with: "
                f"captioner train {path} --out {folder} --resume"
            )
    check_checkpoint(folder / CHECKPOINT, engine.world_size)


def _epochs_matter(recipe: Recipe) -> str:
    """Why a run cannot end later than planned, as the end of a sentence; "" if it can."""
    if recipe.training.schedule == "cosine":
        return ", which the schedule cosine follows"
    if isinstance(recipe, CaptioningRecipe) and recipe.objective.scheduled_sampling > 0:
        return ", which scheduled sampling follows"
    return ""
