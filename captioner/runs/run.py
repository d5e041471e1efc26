"""A training run of either task: its folder, validation, model card and the run itself."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from captioner.errors import UserError
from captioner.files import lock, read_json, read_text, remove_temporaries, write_json, write_text
from captioner.model_folders import CARD, MODEL
from captioner.runs.batches import cut
from captioner.runs.caption_task import CaptionTask, doubt_of_gain
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_task import TranslationRecipe, TranslationTask
from captioner.schema import flat, from_mapping, to_mapping
from captioner.training.checkpoint import CHECKPOINT, read_checkpoint
from captioner.training.distributed import Engine
from captioner.training.loop import LOG, Validation, summary_writer, train
from captioner.training.step import make_optimizer

CONFIG = "config.json"  # File in a run's folder: its recipe.

CHANGEABLE = (
    "training.epochs",
    "training.patience",
    "training.checkpoint_seconds",
    "training.tensorboard",
    "validation.batch_size",
    "features.batch_size",
    "features.folder",
)
"""Fields that may change on resuming."""

Recipe = CaptioningRecipe | TranslationRecipe
Task = CaptionTask | TranslationTask
"""A model with its data.

It reads the data when it is made, before the run's folder is locked; `prepare` makes the batches.
`loss` is trained on `batches`, by the optimiser's `parameter_groups`. `generate` gives
texts for batches of the validation data, whose numbers are in `order`, and `score` their scores;
`save` writes the model, its scores and the texts. `data` describes the data for the model card.
"""


def train_run(
    recipe: Recipe, folder: str | Path, resume: bool = False, device: torch.device | str = "cpu"
) -> Path:
    """Train by a recipe; returns the folder of the best model.

    folder: receives `config.json`, the vocabulary, the checkpoint, the log, and `model/` with the
        best model so far; also a captioner's `features/` and `results.json`, or a translator's
        `translations.txt`.
    resume: continue from the folder's checkpoint, if there is one, with the recipe it was made by
        but for `CHANGEABLE`.
    device: under `torchrun`, the type of device; each process takes its own.
    """
    folder = Path(folder)
    make: Any = CaptionTask if isinstance(recipe, CaptioningRecipe) else TranslationTask
    with Engine(device) as engine, ExitStack() as stack:
        with engine.fail_together():
            check_folder(recipe, folder, resume, engine)
            resumed = resume and os.path.exists(folder / CHECKPOINT)
            if resume and not resumed:
                print(f"nothing to resume in {folder} yet; training starts", flush=True)
            task: Task = make(recipe, folder, resumed)
        with engine.fail_together():
            if engine.is_main:
                stack.enter_context(lock(folder / ".lock", f"run {folder}"))
                for place in (folder, folder / MODEL):
                    remove_temporaries(place, age=0)
                write_json(folder / CONFIG, to_mapping(recipe))
        task.prepare(folder, engine, resumed)
        texts: list[str] = []

        def validate() -> dict[str, float]:
            # Processes take whole batches in turn, so that scores do not depend on their number.
            batches = cut(task.order, recipe.validation.batch_size)
            own = batches[engine.rank :: engine.world_size]
            generated: dict[int, str] = {}
            with engine.fail_together():
                generated = dict(zip(chain.from_iterable(own), task.generate(own), strict=True))
            every = dict(chain.from_iterable(each.items() for each in engine.gather(generated)))
            texts[:] = [every[number] for number in sorted(every)]
            with engine.fail_together():
                return task.score(texts) if engine.is_main else {}

        def keep(scores: dict[str, float], epoch: int) -> None:
            task.save(folder, texts, scores, epoch)
            write_card(task, folder, epoch, scores)

        before = recipe.start_from is not None
        validation = Validation(validate, recipe.validation.score, keep, before)
        optimizer = make_optimizer(task.loss, recipe.training, task.parameter_groups)
        position = train(
            task.loss, task.batches, recipe.training, folder, validation, resume, optimizer, engine
        )
        if engine.is_main:
            _report(task, folder, position.epoch)
    return folder / MODEL


def check_folder(recipe: Recipe, folder: Path, resume: bool, engine: Engine) -> None:
    """Refuse a folder with a run, unless it is to be resumed by its recipe but for `CHANGEABLE`."""
    if recipe.training.tensorboard:
        summary_writer()  # Its package may be missing.
    if not os.path.exists(folder / CHECKPOINT):
        return
    if not resume:
        raise UserError(f"{folder} holds a run: give --resume to continue it, or another folder")
    path = folder / CONFIG
    try:
        saved = from_mapping(type(recipe), read_json(path, "config of the run"), str(path))
    except UserError as error:
        reason = f"a run of another task or by another version: {error}"
        raise UserError(f"cannot resume {folder}, {reason}") from None
    before, now = flat(to_mapping(saved)), flat(to_mapping(recipe))
    fixed = (before.keys() | now.keys()) - {*CHANGEABLE}
    is_sampled = isinstance(saved, CaptioningRecipe) and saved.objective.scheduled_sampling > 0
    if is_sampled or saved.training.schedule == "cosine":  # They follow the number of epochs.
        fixed.add("training.epochs")
    for name in sorted(fixed):
        if before.get(name) != now.get(name):
            raise UserError(
                f"cannot resume {folder}: it was made with {name} {before.get(name)!r}, "
                f"not {now.get(name)!r}; captioner train {path} --out {folder} --resume keeps what "
                f"it was made with, and --start-from {folder} with another --out trains its model "
                "further"
            )
    read_checkpoint(folder / CHECKPOINT, engine.world_size)


def _report(task: Task, folder: Path, epochs: int) -> None:
    """Print the epoch of the best model, if it gained nothing, and if the run stopped early."""
    score, settings = task.recipe.validation.score, task.recipe.training
    best = max(validations_of(folder, score), key=lambda record: record[score])
    if epochs < settings.epochs:
        why = f"{settings.patience} validations without a better {score}"
        print(f"stopped early, after epoch {epochs} of {settings.epochs}: {why}")
    epoch = f"epoch {best['epoch']}" if best["epoch"] else "the start, which no epoch surpassed"
    print(f"the best model, of {epoch} ({score} {best[score]:.4f}), is in {folder / MODEL}")
    if isinstance(task, CaptionTask):
        if best["epoch"] and (doubt := doubt_of_gain(folder, task.validation, score)):
            print(doubt)
        if task.recipe.data.format != "shapes":
            print("it has no confidence yet; captioner calibrate fits one")


def validations_of(folder: Path, score: str) -> list[dict[str, Any]]:
    """The records with a validation in the log of a run; that of epoch 0 is before training."""
    lines = read_text(folder / LOG, "run log").splitlines()
    return [record for record in map(json.loads, lines) if score in record]


def write_card(task: Task, folder: Path, epoch: int, scores: dict[str, float]) -> None:
    """Write the card beside the best model of a run's folder, kept after this epoch."""
    recipe, score, origin = task.recipe, task.recipe.validation.score, ""
    kind, tag = "translator", "translation"
    if isinstance(recipe, CaptioningRecipe):
        kind, tag = "captioner", "image-to-text"
        origin = f", started from {recipe.start_from}" if recipe.start_from is not None else ""
    when = f"after epoch {epoch}" if epoch else "before training"
    before = [each for each in validations_of(folder, score) if each["epoch"] == 0]
    settings = flat(recipe.model_dump(mode="json", exclude_defaults=True))
    if "start_from" in settings:  # They are its own, and their path is of this machine.
        settings.pop("encoder.weights", None)

    def listed(lines: Iterable[str]) -> str:
        return "\n".join(f"- {line}" for line in lines)

    def value_of(name: str) -> str:
        start = "".join(f"; {record[name]:.3f} before training" for record in before)
        return f"{name.replace('_', ' ')} {scores[name]:.3f} in validation, {when}{start}"

    card = f"""---
library_name: captioner
pipeline_tag: {tag}
---

# A {kind}{origin}

{value_of(score)}.

{listed(task.data)}

## Scores

{listed(map(value_of, scores))}

## Settings

captioner {sys.modules[__name__.partition(".")[0]].__version__}, torch {torch.__version__}; fields
of the config that are not the default:

{listed(f"`{name}`: {value}" for name, value in settings.items())}
"""
    write_text(folder / MODEL / CARD, card)
