"""Trains a captioner or a translator as its recipe says: one trainer for every task."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.captioning_task import CaptioningTask
from captioner.runs.run_folder import check_run, locked_run_folder, run_engine
from captioner.runs.task import Recipe, Task
from captioner.runs.translation_task import TranslationTask
from captioner.runs.validator import MODEL, Validator
from captioner.training import CHECKPOINT, Validation, train


def train_run(
    recipe: Recipe,
    folder: str | Path,
    resume: bool = False,
    device: torch.device | str = "cpu",
) -> Path:
    """Train as the recipe says; returns the folder of the best model.

    folder: gets `config.json`, the vocabulary, `environment.json` (versions), the checkpoint, the
        log and `model/`, which is replaced whenever a validation is the best so far, with its
        scores; a captioner's also `features/` and `results.json`, a translator's
        `translations.txt`.
    resume: continue from the folder's checkpoint, with the recipe that it was made with except for
        `CHANGEABLE`. Without it a folder with a checkpoint is refused.
    device: under `torchrun`, a kind of device, of which each process takes its own.
    Raises `UserError` for what is wrong with the data, the weights or the folder, and for a folder
    in which another run is training. Several processes end as `captioner.training.train` says.
    """
    folder = Path(folder)
    task = task_of(recipe)
    with run_engine(device) as engine, contextlib.ExitStack() as stack:
        with engine.fail_together():
            check_run(recipe, folder, resume, engine)
            resumed = resume and (folder / CHECKPOINT).exists()
            task.read(folder, resumed)
        stack.enter_context(locked_run_folder(recipe, folder, resume, engine))
        with engine.abort_together():
            prepared = task.prepare(folder, engine, resumed)
            engine.gather(None)  # waits until every process is ready
        validator = Validator(prepared, folder, engine)
        train(
            prepared.loss,
            prepared.batches,
            recipe.training,
            folder,
            Validation(
                validator.run,
                recipe.validation.score,
                validator.keep,
                validator.show,
                validator.save,
            ),
            resume,
            prepared.parameter_groups,
            engine,
        )
        print(f"the best model is in {folder / MODEL}")
    return folder / MODEL


def task_of(recipe: Recipe) -> Task:
    """The task of a recipe."""
    if isinstance(recipe, CaptioningRecipe):
        return CaptioningTask(recipe)
    return TranslationTask(recipe)
