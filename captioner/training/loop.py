"""The training loop: one for every model. It knows of a model only that it has `loss(batch)`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.progress import Progress
from captioner.training.checkpoint import Position, load_checkpoint, save_checkpoint
from captioner.training.config import TrainingConfig
from captioner.training.interruption import Interrupted, Interruption
from captioner.training.log import RunLog
from captioner.training.schedule import learning_rate_factor, validations_since_best

CHECKPOINT, LOG = "last.safetensors", "log.jsonl"


class Batches(Protocol):
    """The training set, cut into batches; the same for the same epoch, whoever asks."""

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        ...

    def batches(self, epoch: int, first: int) -> Iterable[Any]:
        """The batches of the epoch, from number `first` on."""
        ...


class Trainable(Protocol):
    """A model with a loss; an `nn.Module`."""

    def loss(self, batch: Any) -> dict[str, Tensor]:
        """The loss of a batch as a scalar under `loss`, and further scalars to report."""
        ...


@dataclass(frozen=True)
class Validation:
    """How a run is judged, between epochs.

    run: gives scores by name; the model is in evaluation mode and gradients are off.
    score: the name of the one that decides; higher is better.
    keep: called when that one is the best so far, to save what is to be kept.
    """

    run: Callable[[], dict[str, float]]
    score: str
    keep: Callable[[dict[str, float]], None]


def train(
    model: nn.Module,
    data: Batches,
    config: TrainingConfig,
    folder: Path,
    validation: Validation | None = None,
    resume: bool = False,
    groups: list[dict[str, Any]] | None = None,
) -> Position:
    """Train a model, which must be a `Trainable`, and give back where the run ended.

    folder: gets `last.safetensors` (the checkpoint) and `log.jsonl`.
    resume: go on from the checkpoint, if there is one, to the same numbers as a run that was
        never stopped (on the CPU, bit for bit).
    groups: parameter groups for Adam, each with its own `lr` if it has one; by default all
        parameters that take a gradient.

    The caller seeds torch before making the model; from here on dropout draws from torch's own
    generator, whose state is part of the checkpoint.
    Raises `UserError` when the loss or its gradient is not finite or the disk is full, with the
    last checkpoint whole, and `Interrupted` after Ctrl-C or SIGTERM, with a checkpoint just
    written.
    """
    optimizer = _optimizer(model, config, groups)
    path = folder / CHECKPOINT
    position = Position()
    if resume and path.exists():
        position = load_checkpoint(path, model, optimizer)
    # Amid an epoch, a record of this very step can only be one that is yet to be written again.
    recorded = position.step if position.step_in_epoch == 0 else position.step - 1
    log = RunLog(folder / LOG, recorded if resume else None)
    device = next(model.parameters()).device
    total_steps = sum(data.steps(epoch) for epoch in range(config.epochs))
    if total_steps == 0:
        raise UserError("there is nothing to train on: the training set has no batches")
    saved, saved_step = time.monotonic(), position.step
    with Interruption() as interruption:
        while position.epoch < config.epochs and not _finished(position, config):
            model.train()
            steps = data.steps(position.epoch)
            progress = Progress(
                f"epoch {position.epoch + 1}/{config.epochs}",
                steps,
                "steps",
                start=position.step_in_epoch,
            )
            for batch in data.batches(position.epoch, position.step_in_epoch):
                factor = learning_rate_factor(config, position.step, total_steps, position.scores)
                for group in optimizer.param_groups:
                    group["lr"] = group["initial_lr"] * factor
                report = _step(model, batch.to(device), optimizer, config)
                if not _is_finite(report):
                    progress.close()
                    raise UserError(
                        f"the loss is {report['loss']} and the norm of its gradient "
                        f"{report['gradient_norm']} at step {position.step + 1}, in epoch "
                        f"{position.epoch + 1}: lower learning_rate or clip_norm"
                        + (f"; {path} is from before it" if path.exists() else "")
                    )
                position.step += 1
                position.step_in_epoch += 1
                for name, value in report.items():
                    position.totals[name] = position.totals.get(name, 0.0) + value
                mean = position.totals["loss"] / position.step_in_epoch
                progress.advance(note=f"loss {mean:.3f}")
                if interruption.asked or time.monotonic() - saved > config.checkpoint_seconds:
                    save_checkpoint(path, model, optimizer, position)
                    saved, saved_step = time.monotonic(), position.step
                if interruption.asked:
                    progress.close()
                    raise Interrupted(
                        f"stopped after step {position.step}; go on from {path} with --resume"
                    )
            means = {k: v / max(1, position.step_in_epoch) for k, v in position.totals.items()}
            progress.close(f"loss {means.get('loss', math.nan):.3f}")
            due = (position.epoch + 1) % config.validate_every == 0
            due = validation is not None and (due or position.epoch + 1 == config.epochs)
            if due and saved_step < position.step:  # Validating takes long, and may go wrong.
                save_checkpoint(path, model, optimizer, position)
            position.epoch += 1
            position.step_in_epoch = 0
            position.totals = {}
            last = learning_rate_factor(
                config, max(0, position.step - 1), total_steps, position.scores
            )
            record: dict[str, Any] = {
                "epoch": position.epoch,
                "step": position.step,
                "learning_rate": optimizer.param_groups[0]["initial_lr"] * last,
                **{f"train_{name}": value for name, value in means.items()},
            }
            if validation is not None and due:
                record.update(_validate(model, validation, position))
            log.write(record)
            save_checkpoint(path, model, optimizer, position)
            saved, saved_step = time.monotonic(), position.step
    return position


def _step(
    model: nn.Module, batch: Any, optimizer: torch.optim.Optimizer, config: TrainingConfig
) -> dict[str, float]:
    """One step of gradient descent; what the model reports, as numbers."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    device = parameters[0].device
    precision: AbstractContextManager[Any] = (
        torch.autocast(device.type, torch.bfloat16)
        if config.precision == "bfloat16"
        else nullcontext()
    )
    optimizer.zero_grad(set_to_none=True)
    with precision:
        report: dict[str, Tensor] = model.loss(batch)  # type: ignore[operator]
    report["loss"].backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(parameters, config.clip_norm or math.inf)
    report = {**report, "gradient_norm": norm}
    numbers = {name: float(value.detach()) for name, value in report.items()}
    if _is_finite(numbers):
        optimizer.step()
    return numbers


def _is_finite(report: dict[str, float]) -> bool:
    """Whether a step in the direction of this gradient leaves the weights numbers."""
    return math.isfinite(report["loss"]) and math.isfinite(report["gradient_norm"])


def _validate(model: nn.Module, validation: Validation, position: Position) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        scores = validation.run()
    score = scores[validation.score]
    if math.isnan(score):
        raise UserError(f"the validation score {validation.score!r} is not a number")
    best = all(score > other for other in position.scores)
    position.scores.append(score)
    if best:
        validation.keep(scores)
    print(
        f"epoch {position.epoch}: "
        + ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        + (" (best)" if best else ""),
        flush=True,
    )
    return scores


def _finished(position: Position, config: TrainingConfig) -> bool:
    return 0 < config.patience <= validations_since_best(position.scores)


def _optimizer(
    model: nn.Module, config: TrainingConfig, groups: list[dict[str, Any]] | None
) -> torch.optim.Optimizer:
    if groups is None:
        groups = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    optimizer = torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=groups[0]["params"][0].device.type in ("cpu", "cuda"),
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer
