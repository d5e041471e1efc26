"""Trains a captioner or a translator by its recipe."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch import nn

from captioner.attention import Attention
from captioner.attention.transformer import DecoderLayer, EncoderLayer
from captioner.model_folders import MODEL
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.captioning_task import CaptioningTask
from captioner.runs.model_card import validations_of, write_card
from captioner.runs.run_folder import check_folder, locked_run_folder, run_engine
from captioner.runs.task import Recipe, Task
from captioner.runs.translation_task import TranslationTask
from captioner.runs.validator import Validator
from captioner.training import CHECKPOINT, Validation, make_optimizer, train
from captioner.vision.encoder import Encoder

COMPILED_PARTS = (Attention, EncoderLayer, DecoderLayer, Encoder)
"""Where a training step spends its time."""


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
    Raises `UserError` for bad data, weights or folders, and if another run has locked the folder.
    Several processes end as `captioner.training.train` says.
    """
    task: Task
    if isinstance(recipe, CaptioningRecipe):
        task = CaptioningTask(recipe)
    else:
        task = TranslationTask(recipe)
    return train_task(task, Path(folder), resume, device)


def train_task(
    task: Task, folder: Path, resume: bool = False, device: torch.device | str = "cpu"
) -> Path:
    """Train the model of a task; see `train_run`."""
    recipe = task.recipe
    with run_engine(device) as engine, contextlib.ExitStack() as stack:
        with engine.fail_together():
            check_folder(recipe, folder, resume, engine)
            resumed = resume and (folder / CHECKPOINT).exists()
            if resume and not resumed:
                print(f"nothing to resume in {folder} yet; training starts", flush=True)
            task.read(folder, engine, resumed)
        stack.enter_context(locked_run_folder(recipe, folder, resume, engine))
        prepared = task.prepare(folder, engine, resumed)
        engine.barrier()
        validator = Validator(prepared, folder, engine)
        validate = validator.run

        def keep(scores: dict[str, float], epoch: int) -> None:
            validator.keep(scores)
            write_card(recipe, folder, prepared.data, {"epoch": epoch, **scores})

        if recipe.training.compile:
            compile_parts(prepared.loss)
            # The shapes of a search change with every word.
            validate = torch.compiler.set_stance("force_eager")(validate)
        position = train(
            prepared.loss,
            prepared.batches,
            recipe.training,
            folder,
            Validation(
                validate,
                recipe.validation.score,
                keep,
                validator.show,
                prepared.starts_trained,
            ),
            resume,
            make_optimizer(prepared.loss, recipe.training, prepared.parameter_groups),
            engine,
        )
        with engine.fail_together():
            if engine.is_main:
                write_card(recipe, folder, prepared.data)
                _report(recipe, folder, position.epoch)
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


def _report(recipe: Recipe, folder: Path, epochs: int) -> None:
    """Print the epoch of the best model, and whether the run stopped early."""
    score, settings = recipe.validation.score, recipe.training
    _, best, _ = validations_of(folder, score)
    if epochs < settings.epochs:
        print(
            f"stopped early, after epoch {epochs} of {settings.epochs}: {settings.patience} "
            f"validations without a better {score}"
        )
    epoch = f"epoch {best['epoch']}" if best["epoch"] else "the start, which no epoch surpassed"
    print(f"the best model, of {epoch} ({score} {best[score]:.4f}), is in {folder / MODEL}")
    if isinstance(recipe, CaptioningRecipe):
        print("it has no confidence yet; captioner calibrate fits one")
