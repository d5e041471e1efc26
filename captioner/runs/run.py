"""A training run of either task: its folder, validation, model card and the run itself."""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from captioner.attention.attention import Attention
from captioner.attention.transformer import DecoderLayer, EncoderLayer
from captioner.errors import UserError
from captioner.files import (
    folder_lock,
    read_json,
    read_text,
    remove_temporaries,
    write_json,
    write_text,
)
from captioner.model_folders import CARD, MODEL
from captioner.runs.caption_task import RESULTS, START_RESULTS, CaptionTask
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.runs.translation_task import TranslationTask
from captioner.schema import flat, from_mapping, to_mapping
from captioner.training.checkpoint import CHECKPOINT, read_checkpoint
from captioner.training.distributed import Engine
from captioner.training.log import LOG, ShownExample, summary_writer
from captioner.training.loop import Validation, train
from captioner.training.optimization import make_optimizer
from captioner.vision.encoder import Encoder

COMPILED_PARTS = (Attention, EncoderLayer, DecoderLayer, Encoder)
"""Where a training step spends its time."""

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


Recipe = CaptioningRecipe | TranslationRecipe
Task = CaptionTask | TranslationTask
"""A model with its data.

`read` reads the data and makes the model, before the run's folder is locked; `prepare` makes the
batches. `loss` is the module that is trained on `batches`, by the optimiser's `parameter_groups`.
`generate` gives texts for the validation data, `score` their scores; `save` writes the model, its
scores and the texts, and `show` gives some for TensorBoard. `data` describes the data for the model
card.
"""


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
    """Raise `UserError` if the folder holds a run that cannot be resumed.

    Without `resume`, that is any run. With it, a run whose recipe differs in a field that is not
    in `CHANGEABLE`, or in the number of epochs where training follows it, or whose checkpoint is
    damaged or of another number of processes. Raises it also for a missing package.
    """
    if recipe.training.tensorboard:
        summary_writer()  # Its package may be missing.
    if not (folder / CHECKPOINT).exists():
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
            advice = f"; to train its model further: --start-from {folder}, another --out"
            raise UserError(
                f"cannot resume {folder}: it was made with {name} {before.get(name)!r}, "
                f"not {now.get(name)!r}{reason}; to keep what it was made with: "
                f"captioner train {path} --out {folder} --resume" + advice * bool(reason)
            )
    read_checkpoint(folder / CHECKPOINT, engine.world_size)


def _epochs_matter(recipe: Recipe) -> str:
    """Why a run cannot end later than planned, as the end of a sentence; "" if it can."""
    if recipe.training.schedule == "cosine":
        return ", which the schedule cosine follows"
    if isinstance(recipe, CaptioningRecipe) and recipe.objective.scheduled_sampling > 0:
        return ", which scheduled sampling follows"
    return ""


class Validator:
    """Generates texts without teacher forcing, scores them and keeps the best model."""

    def __init__(self, task: Task, folder: Path, engine: Engine) -> None:
        self.task, self.folder, self.engine = task, folder, engine
        self.texts: list[str] = []

    def run(self) -> dict[str, float]:
        """Generate together with the other processes; the main process returns the scores.

        Processes take whole batches in turn, so that scores do not depend on their number.
        """
        engine = self.engine
        generated: dict[int, str] = {}
        with engine.fail_together():
            generated = self.task.generate(engine.rank, engine.world_size)
        by_number = dict(chain.from_iterable(each.items() for each in engine.gather(generated)))
        self.texts = [by_number[number] for number in range(len(by_number))]
        with engine.fail_together():
            return self.task.score(self.texts) if engine.is_main else {}

    def keep(self, scores: dict[str, float], epoch: int) -> None:
        """Save the best model with its scores, texts and card."""
        self.task.save(self.folder, self.texts, scores)
        if epoch == 0 and isinstance(self.task, CaptionTask):
            shutil.copyfile(self.folder / RESULTS, self.folder / START_RESULTS)
        write_card(self.task.recipe, self.folder, self.task.data, epoch, scores)

    def show(self) -> list[ShownExample]:
        """The first validation items, for TensorBoard."""
        return self.task.show(self.texts)


def train_run(
    recipe: Recipe,
    folder: str | Path,
    resume: bool = False,
    device: torch.device | str = "cpu",
) -> Path:
    """Train by a recipe; returns the folder of the best model.

    folder: receives `config.json`, the vocabulary, `environment.json` (versions), the checkpoint,
        the log, and `model/` with the best model so far, its scores and its card;
        also a captioner's `features/` and `results.json`, or a translator's `translations.txt`.
    resume: continue from the folder's checkpoint, if there is one; only fields in `CHANGEABLE` may
        differ. Without it, a folder with a checkpoint is refused.
    device: under `torchrun`, the type of device; each process takes its own.
    Several processes end as `captioner.training.loop.train` says.
    """
    folder = Path(folder)
    task: Task = (
        CaptionTask(recipe) if isinstance(recipe, CaptioningRecipe) else TranslationTask(recipe)
    )
    with Engine(device) as engine, contextlib.ExitStack() as stack:
        with engine.fail_together():
            if engine.is_main:
                check_folder(recipe, folder, resume, engine)
            resumed = resume and (folder / CHECKPOINT).exists()
            if resume and not resumed:
                print(f"nothing to resume in {folder} yet; training starts", flush=True)
            task.read(folder, resumed)
        with engine.fail_together():
            if engine.is_main:
                stack.enter_context(folder_lock(folder, "run"))
                for place in (folder, folder / MODEL):
                    remove_temporaries(place, age=0)
                # Again: another run may have ended meanwhile.
                check_folder(recipe, folder, resume, engine)
                _write_record(folder / RECORD, recipe.training.seed, engine, resume)
                write_json(folder / CONFIG, to_mapping(recipe))
        task.prepare(folder, engine, resumed)
        validator = Validator(task, folder, engine)
        validate = validator.run
        if recipe.training.compile:
            compile_parts(task.loss)
            # The shapes of a search change with every word.
            validate = torch.compiler.set_stance("force_eager")(validate)
        position = train(
            task.loss,
            task.batches,
            recipe.training,
            folder,
            Validation(
                validate,
                recipe.validation.score,
                validator.keep,
                validator.show,
                before=recipe.start_from is not None,
            ),
            resume,
            make_optimizer(task.loss, recipe.training, task.parameter_groups),
            engine,
        )
        if engine.is_main:
            _report(task, folder, position.epoch)
    return folder / MODEL


def compile_parts(model: nn.Module) -> None:
    """Have torch compile attention, Transformer layers and the encoder, at their first call.

    Not the whole model: a loop over the words of captions would be compiled anew for every length.
    On a GPU additive attention becomes one kernel in place of four: sum, tanh, product with v,
    softmax.
    """
    for module in model.modules():
        if isinstance(module, COMPILED_PARTS):
            module.compile()


def _report(task: Task, folder: Path, epochs: int) -> None:
    """Print the epoch of the best model, if it gained nothing, and if the run stopped early."""
    recipe = task.recipe
    score, settings = recipe.validation.score, recipe.training
    best = max(validations_of(folder, score), key=lambda record: record[score])
    if epochs < settings.epochs:
        print(
            f"stopped early, after epoch {epochs} of {settings.epochs}: {settings.patience} "
            f"validations without a better {score}"
        )
    epoch = f"epoch {best['epoch']}" if best["epoch"] else "the start, which no epoch surpassed"
    print(f"the best model, of {epoch} ({score} {best[score]:.4f}), is in {folder / MODEL}")
    if not isinstance(task, CaptionTask):
        return
    if best["epoch"] and (doubt := task.doubt_of_gain(folder)):
        print(doubt)
    if task.recipe.data.format != "shapes":
        print("it has no confidence yet; captioner calibrate fits one")


def validations_of(folder: Path, score: str) -> list[dict[str, Any]]:
    """The records with a validation in the log of a run; that of epoch 0 is before training."""
    lines = read_text(folder / LOG, "run log").splitlines()
    return [record for record in map(json.loads, lines) if score in record]


def write_card(
    recipe: Recipe, folder: Path, data: Sequence[str], epoch: int, scores: dict[str, float]
) -> None:
    """Write the card beside a run's best model.

    folder: the run's. data: sentences about training and validation data.
    epoch, scores: of the model that was just kept; epoch 0 is before training.
    """
    score = recipe.validation.score
    start = recipe.start_from if isinstance(recipe, CaptioningRecipe) else None
    kind, tag = "translator", "translation"
    if isinstance(recipe, CaptioningRecipe):
        kind, tag = "captioner", "image-to-text"
    before = [each for each in validations_of(folder, score) if each["epoch"] == 0]
    when = f"after epoch {epoch}" if epoch else "before training"
    summary = f"{score} {scores[score]:.3f} in validation, {when}"
    if before:
        summary += f"; {before[0][score]:.3f} before training"
    version = sys.modules[__name__.partition(".")[0]].__version__
    rows = [
        f"| {record['epoch']} | {' | '.join(f'{record[name]:.4f}' for name in scores)} |"
        for record in [*before, {"epoch": epoch, **scores}]
    ]
    settings = [f"- `{name}`: {value}" for name, value in _settings(recipe).items()]
    lines = [
        *("---", "library_name: captioner", f"pipeline_tag: {tag}", "---", ""),
        f"# A {kind}" + (f", started from {start}" if start is not None else ""),
        *("", f"{summary}.", ""),
        *(f"- {sentence}" for sentence in data),
        *("", "## Scores", ""),
        f"| epoch | {' | '.join(scores).replace('_', ' ')} |",
        f"|---|{'---|' * len(scores)}",
        *rows,
        *("", "## Settings", ""),
        f"captioner {version}; fields of the config that are not the default:",
        *("", *settings, ""),
    ]
    write_text(folder / MODEL / CARD, "\n".join(lines))


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe that differ from their defaults, by dotted name."""
    settings = flat(recipe.model_dump(mode="json", exclude_defaults=True))
    if "start_from" in settings:  # They are its own, and their path is of this machine.
        settings.pop("encoder.weights", None)
    return settings
