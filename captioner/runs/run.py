"""A training run of either task: its folder, validation, model card and the run itself."""

import gc
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

import captioner
from captioner.errors import CONTROLS, UserError
from captioner.files import lock, read_json, remove_temporaries, write_json, write_text
from captioner.model_folders import CARD, MODEL, SCORES_FILE
from captioner.runs.batches import chunks
from captioner.runs.caption_task import CaptionTask, make_caption_task
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_task import (
    TranslationRecipe,
    TranslationTask,
    make_translation_task,
)
from captioner.schema import flat, from_mapping, to_mapping
from captioner.training.checkpoint import CHECKPOINT, Position, read_checkpoint
from captioner.training.distributed import Processes
from captioner.training.loop import Trainer, Validated, Validation
from captioner.training.optimizer import make_optimizer
from captioner.training.run_log import best_record, read_log, summary_writer

Recipe = CaptioningRecipe | TranslationRecipe


Task = CaptionTask | TranslationTask
"""A model on its device, with its data.

recipe: the config. loss: has `loss(batch)`, as `captioner.training.loop.Trainer` takes it. batches:
    the training data. parameter_groups: of the optimiser; None for all parameters in one.
order: the rows to validate on. digest: of the training and validation data.
generate: texts for batches of these rows, and the cross-entropy of their references. score: that of
    the texts of all rows. save: the model and these texts, in the folder of a run.
kind, pipeline_tag: of the model, for its card, which also has the sentences of `data`.
"""


RECIPE_FILE = "config.json"  # File in a run's folder: its recipe.
CARD_TEMPLATE = Path(__file__).with_name("card.md")

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

TASKS: dict[type[Recipe], Callable[[Any, Path, bool], Callable[[Processes], Task]]] = {
    CaptioningRecipe: make_caption_task,
    TranslationRecipe: make_translation_task,
}
"""Reads the data of a recipe, and returns what makes its task once the run's folder is locked."""


def train_run(
    recipe: Recipe, folder: str | Path, resume: bool = False, device: torch.device | str = "cpu"
) -> Path:
    """Train by a recipe; returns the folder of the best model.

    folder: receives the config, vocabulary, checkpoint, log, and the best model so far in `model/`;
        also a captioner's `features/` and `results.json`, or a translator's `translations.txt`.
    resume: continue from the folder's checkpoint, if any; only `CHANGEABLE` fields may differ.
    device: under `torchrun`, the type of device; each process takes its own.
    """
    folder = Path(folder)
    with Processes(device) as processes, ExitStack() as stack:
        with processes.fail_together():
            position = check_folder(recipe, folder, resume, processes.world_size)
            resumed = position is not None
            if position is not None and position.is_finished(recipe.training):
                advice = f"raise training.epochs or training.patience, or --start-from {folder}"
                print(f"{folder} is trained to its end; to go on, {advice}", flush=True)
                return folder / MODEL
            if resume and not resumed:
                print(f"nothing to resume in {folder} yet; training starts", flush=True)
            stack.callback(gc.unfreeze)
            gc.disable()  # To search millions of objects takes a third of reading COCO's captions.
            try:
                make_task = TASKS[type(recipe)](recipe, folder, resumed)
            finally:
                gc.freeze()
                gc.enable()
        with processes.fail_together():
            if processes.is_main:
                stack.enter_context(lock(folder / ".lock", f"run {folder}"))
                for place in (folder, folder / MODEL):
                    remove_temporaries(place, age=0)
                write_json(folder / RECIPE_FILE, to_mapping(recipe))
        task = make_task(processes)
        began = read_log(folder, "run")[:1] if resumed else []
        if processes.is_main and any(record["run"]["data"] != task.digest for record in began):
            advice = f"to begin anew, --start-from {folder} with another --out"
            print(f"the data have changed since this run began: {advice}", flush=True)

        def keep(validated: Validated, epoch: int) -> None:
            task.save(folder, validated.texts)
            write_json(folder / MODEL / SCORES_FILE, validated.record)
            write_card(task, folder, epoch, validated.scores)

        settings = recipe.training
        is_started = recipe.start_from is not None and recipe.validation.start
        run_validation = partial(validate, task, processes)
        validation = Validation(run_validation, recipe.validation.score, keep, before=is_started)
        optimizer = make_optimizer(task.loss, settings, task.parameter_groups)
        data, origin = task.batches, origin_of(task, processes)
        position = Trainer(
            task.loss, data, settings, folder, optimizer, processes, validation, origin, resume
        ).train()
        if processes.is_main:
            _report(task, folder, position.epoch)
    return folder / MODEL


def validate(task: Task, processes: Processes) -> Validated:
    """Generate and score texts of the validation data; process 0 has the scores.

    `cross_entropy`, teacher-forced: nats a token of the references, the end included, without
    smoothing or regularisation; `perplexity` is its exponential. Processes take whole batches in
    turn, so that scores do not depend on their number.
    """
    batches = chunks(task.order, task.recipe.validation.batch_size)
    batches = batches[processes.rank :: processes.world_size]
    with processes.fail_together():
        generated = list(zip(batches, task.generate(batches), strict=True))
    of_all = [*chain.from_iterable(processes.gather(generated))]
    with processes.fail_together():
        if not processes.is_main:
            return Validated({})
        rows = chain.from_iterable(rows for rows, _ in of_all)
        texts = dict(zip(rows, chain.from_iterable(each.texts for _, each in of_all), strict=True))
        scored = task.score([texts[row] for row in sorted(texts)])
        nats = math.fsum(each.nats for _, each in of_all)
        mean = nats / sum(each.tokens for _, each in of_all)
        # The exponential of more would overflow.
        likelihood = {"cross_entropy": mean, "perplexity": math.exp(min(mean, 700.0))}
        return replace(scored, scores=scored.scores | likelihood)


def origin_of(task: Task, processes: Processes) -> dict[str, object]:
    """What makes a run, for its log: the data's digest, versions and the machine."""
    device = processes.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        "data": task.digest,
        "versions": f"captioner {captioner.__version__}, torch {torch.__version__}, {sys.version}",
        "machine": platform.platform(),
        "devices": f"{processes.world_size} x {gpu or device}, {torch.get_num_threads()} threads",
    }


def check_folder(recipe: Recipe, folder: Path, resume: bool, world_size: int) -> Position | None:
    """Refuse a folder with a run, unless resumed with its recipe but for `CHANGEABLE`.

    The position of the run; None of a new one.
    """
    if recipe.training.tensorboard:
        summary_writer()  # Its package may be missing.
    if not os.path.exists(folder / CHECKPOINT):
        return None
    if not resume:
        raise UserError(f"{folder} holds a run: give --resume to continue it, or another folder")
    path = folder / RECIPE_FILE
    try:
        saved = from_mapping(type(recipe), read_json(path, "config of the run"), str(path))
    except UserError as error:
        reason = f"a run of another task or by another version: {error}"
        raise UserError(f"cannot resume {folder}, {reason}") from None
    position, _ = read_checkpoint(folder / CHECKPOINT, world_size)
    before, now = flat(to_mapping(saved)), flat(to_mapping(recipe))
    fixed = (before.keys() | now.keys()) - {*CHANGEABLE}
    if _depends_on_epochs(saved, position):
        fixed |= {"training.epochs"}
    for name in sorted(fixed):
        if before.get(name) != now.get(name):
            was = f"depends on {name} {before.get(name)!r}, not {now.get(name)!r}"
            advice = f"give its own config, {path}, or --start-from {folder} with another --out"
            raise UserError(f"cannot resume {folder}: what it did so far {was}; {advice}")
    return position


def _depends_on_epochs(recipe: Recipe, position: Position) -> bool:
    """Whether a run of more epochs would have differed so far.

    The cosine and scheduled sampling follow their number; and only the last epoch is validated
    between those of `validate_every`.
    """
    settings = recipe.training
    is_sampled = isinstance(recipe, CaptioningRecipe) and recipe.objective.scheduled_sampling > 0
    was_last = position.epoch == settings.epochs and position.epoch % settings.validate_every > 0
    return is_sampled or was_last or settings.schedule == "cosine"


def _report(task: Task, folder: Path, epochs: int) -> None:
    """Print the epoch of the best model, if it gained nothing, and if the run stopped early."""
    score = task.recipe.validation.score
    settings = task.recipe.training
    best = best_record(read_log(folder), score)
    if epochs < settings.epochs:
        why = f"{settings.patience} validations without a better model"
        print(f"stopped early, after epoch {epochs} of {settings.epochs}: {why}")
    epoch = f"epoch {best['epoch']}" if best["epoch"] else "the start, which no epoch surpassed"
    print(f"the best model, of {epoch} ({score} {best[score]:.4f}), is in {folder / MODEL}")
    if isinstance(task.recipe, CaptioningRecipe) and task.recipe.data.format != "shapes":
        print("captioner calibrate fits its confidence")


def write_card(task: Task, folder: Path, epoch: int, scores: dict[str, float]) -> None:
    """Write the card beside the best model of a run's folder, kept after this epoch."""
    recipe = task.recipe
    score = recipe.validation.score
    origin = f", started from {recipe.start_from}" if recipe.start_from else ""
    when = f"after epoch {epoch}" if epoch else "before training"
    before = [record for record in read_log(folder, score) if record["epoch"] == 0]
    settings = flat(recipe.model_dump(mode="json", exclude_defaults=True))
    if "start_from" in settings:  # They are its own, and their path is of this machine.
        settings.pop("encoder.weights", None)

    def listed(lines: Iterable[str]) -> str:
        return "\n".join(f"- {line}" for line in lines)

    def value_of(name: str) -> str:
        start = "".join(f"; {record[name]:.3f} before training" for record in before)
        return f"{name.replace('_', ' ')} {scores[name]:.3f} in validation, {when}{start}"

    card = CARD_TEMPLATE.read_text(encoding="utf-8").format(
        pipeline_tag=task.pipeline_tag,
        kind=task.kind,
        origin=origin,
        summary=value_of(score),
        data=listed(task.data),
        scores=listed(map(value_of, scores)),
        captioner=captioner.__version__,
        torch=torch.__version__,
        settings=listed(f"`{name}`: {value}" for name, value in settings.items()),
    )
    write_text(folder / MODEL / CARD, CONTROLS.sub("", card))
