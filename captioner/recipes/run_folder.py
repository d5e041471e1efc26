"""The folder of a run: whether a run may begin or go on in it, and taking it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from captioner.errors import UserError
from captioner.fields import flat, from_mapping, to_mapping
from captioner.files import folder_lock, read_json, write_json
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.run_record import write_record
from captioner.recipes.translation_config import TranslationRecipe
from captioner.training import CHECKPOINT, Engine, check_checkpoint, summary_writer

CONFIG = "config.json"
"""In a run's folder: the recipe that it was made with."""

CHANGEABLE = (
    "training.epochs",
    "training.patience",
    "training.keep_last",
    "training.checkpoint_seconds",
    "training.tensorboard",
    "validation.batch_size",
    "features.batch_size",
    "features.folder",
)
"""What a resumed run may have otherwise; any other change would make it another run."""


Recipe = CaptioningRecipe | TranslationRecipe


@contextlib.contextmanager
def processes_of_run(device: torch.device | str) -> Iterator[Engine]:
    """The processes of a run, of which the first one alone prints."""
    with Engine(device) as engine, contextlib.ExitStack() as kept:
        if not engine.is_main:
            kept.enter_context(contextlib.redirect_stdout(None))
        yield engine


def check_run(recipe: Recipe, folder: Path, resume: bool, engine: Engine) -> None:
    """Raise `UserError`, in process 0, where the run cannot begin: a matter of seconds.

    That is for want of a package, and as `check_folder` does.
    """
    if engine.is_main:
        if recipe.training.tensorboard:
            summary_writer()  # Its package may be missing.
        check_folder(recipe, folder, resume, engine.size)


@contextlib.contextmanager
def taken_folder(recipe: Recipe, folder: Path, resume: bool, engine: Engine) -> Iterator[None]:
    """While entered, the folder is this run's alone; its config and record are written into it.

    Raises `UserError`, at one process for all, where it is another's, and as `check_folder` does.
    """
    with contextlib.ExitStack() as kept:
        with engine.fail_together():
            if engine.is_main:
                kept.enter_context(folder_lock(folder, "run"))
                # Another run may have been in it meanwhile.
                check_folder(recipe, folder, resume, engine.size)
                write_record(folder, recipe.training.seed, engine, resume)
                write_json(folder / CONFIG, to_mapping(recipe))
        yield


def check_folder(recipe: Recipe, folder: Path, resume: bool, processes: int = 1) -> None:
    """Raise `UserError` where the folder holds a run that this one would not go on with.

    That is any run without `resume`; with it, one whose recipe differs in a field that is not one
    of `CHANGEABLE`, which is named, and one whose checkpoint is damaged, or of a run that was not
    of so many processes.
    """
    if not (folder / CHECKPOINT).exists():
        return
    if not resume:
        raise UserError(f"{folder} holds a run; give --resume to go on with it or another folder")
    path = folder / CONFIG
    made_with = from_mapping(type(recipe), read_json(path, "config of the run"), str(path))
    before, now = flat(to_mapping(made_with)), flat(to_mapping(recipe))
    for name in sorted(before.keys() | now.keys()):
        if name in CHANGEABLE or name.startswith("data.archives."):  # Unpacked, it is no matter.
            continue
        if before.get(name) != now.get(name):
            raise UserError(
                f"cannot resume {folder}: it was made with {name} {before.get(name)!r}, "
                f"not {now.get(name)!r}"
            )
    check_checkpoint(folder / CHECKPOINT, processes)
