"""The training loop: one for every model. It knows of a model only that it has `loss(batch)`."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy
import torch
from torch import Tensor, nn

from captioner.devices import has_bfloat16
from captioner.errors import UserError
from captioner.training.averaging import Average
from captioner.training.batches import Batches, Part, SharedBatches, Step
from captioner.training.checkpoint import (
    Position,
    load_checkpoint,
    random_state,
    save_checkpoint,
)
from captioner.training.config import TrainingConfig
from captioner.training.engine import Engine
from captioner.training.interruption import Interrupted, Interruption
from captioner.training.kept_models import keep_model
from captioner.training.log import RunLog
from captioner.training.optimizers import make_optimizer
from captioner.training.schedule import learning_rate_factor, validations_since_best
from captioner.training.step import Stepper
from captioner.training.step_progress import StepProgress
from captioner.training.tensorboard import Shown, TensorBoard

CHECKPOINT, LOG = "last.safetensors", "log.jsonl"

SCALAR_STEPS = 100
"""Steps between two looks at the loss for TensorBoard; an epoch may take hours."""


class Trainable(Protocol):
    """A model with a loss; an `nn.Module`."""

    def loss(self, batch: Any) -> dict[str, Tensor]:
        """The loss of a batch as a scalar under `loss`, and further scalars to report.

        The loss is a mean over the examples of the batch.
        """
        ...


@dataclass(frozen=True)
class Validation:
    """How a run is judged, between epochs.

    run: gives scores by name; the model is in evaluation mode and gradients are off. Every process
        calls it, with the same weights, and those of process 0 are taken.
    score: the name of the one that decides; higher is better.
    keep: called by process 0 when that one is the best so far, to save what is to be kept.
    show: what the model makes of a few examples, the same ones every time, for TensorBoard; called
        by process 0, after `run`.
    save: called by process 0 to save the model into a folder, where a run keeps the last ones.
    """

    run: Callable[[], dict[str, float]]
    score: str
    keep: Callable[[dict[str, float]], None]
    show: Callable[[], Sequence[Shown]] | None = None
    save: Callable[[Path], None] | None = None


def train(
    model: nn.Module,
    data: Batches | SharedBatches,
    config: TrainingConfig,
    folder: Path,
    validation: Validation | None = None,
    resume: bool = False,
    groups: list[dict[str, Any]] | None = None,
    engine: Engine | None = None,
) -> Position:
    """Train a model, which must be a `Trainable`, and give back where the run ended.

    data: several processes, and parts of a step, need `SharedBatches`.
    folder: gets `last.safetensors` (the checkpoint), `log.jsonl` and, with `keep_last`, the last
        few models in `models/`. On several machines it must be on a disk that they share.
    resume: go on from the checkpoint, if there is one, to the same numbers as a run that was
        never stopped: bit for bit on the CPU, by one process or two. With three or more, torch adds
        the gradients of the first step after a start in another order than those of later ones,
        which changes numbers by some 2e-7 of their size. What several processes log as sums over
        an epoch may differ in the last digit where they were stopped amid it.
    groups: parameter groups for the optimiser, each with its own `lr` if it has one; by default
        all parameters that take a gradient.
    engine: the processes that train together, by default this one on the model's device. All of
        them call this, with the same model, data and config; process 0 prints and writes.

    The caller seeds torch before making the model; from here on dropout draws from torch's own
    generator, whose state is part of the checkpoint. Of several processes each draws its own.
    Raises `UserError` when the loss, its gradient, a weight or what the model draws from is not
    finite, when there is not enough memory and when the disk is full, with the last checkpoint
    whole, and `Interrupted` after Ctrl-C or SIGTERM at any of the processes, with a checkpoint just
    written. Of several processes one raises it, and the others just exit.
    """
    engine = engine or Engine(next(model.parameters()).device)
    run = _Run(model, data, config, folder, validation, resume, groups, engine)
    interruption = Interruption(insist=engine.size == 1)
    with engine.abort_together(), interruption, run.reporting():
        while run.position.epoch < config.epochs and not run.finished:
            run.epoch(interruption)
    return run.position


SLOW_BFLOAT16 = (
    "this machine has no instructions for bfloat16: its products take many times as long as those "
    "of float32, which training.precision=float32 chooses"
)


class _Run:
    """A run under way, as one process sees it."""

    def __init__(
        self,
        model: nn.Module,
        data: Batches | SharedBatches,
        config: TrainingConfig,
        folder: Path,
        validation: Validation | None,
        resume: bool,
        groups: list[dict[str, Any]] | None,
        engine: Engine,
    ) -> None:
        self.model, self.data, self.config, self.folder = model, data, config, folder
        self.validation, self.engine = validation, engine
        self.optimizer = make_optimizer(model, config, groups)
        self.average = Average(model, config.average) if config.average > 0 else None
        self.path = folder / CHECKPOINT
        self.position = Position()
        with engine.fail_together():
            self._check_data()
            if engine.size > 1:
                torch.manual_seed(_seed_of(config.seed, engine.rank))
            resumed = resume and self.path.exists()
            if resumed:
                averages = None if self.average is None else self.average.tensors
                self.position = load_checkpoint(
                    self.path, model, self.optimizer, averages, engine.rank, engine.size
                )
            self.log: RunLog | None = None
            self.board: TensorBoard | None = None
            if engine.is_main:
                if config.precision == "bfloat16" and not has_bfloat16(engine.device):
                    print(SLOW_BFLOAT16, file=sys.stderr)
                self._open_log(resume)
        self.stepper = Stepper(model, self.optimizer, config, engine, self.path)
        self.stepper.start(self.position.totals)
        self.total_steps = config.epochs * data.steps(0)
        self.saved, self.saved_step = time.monotonic(), self.position.step

    def _check_data(self) -> None:
        if self.data.steps(0) == 0:
            raise UserError("there is nothing to train on: the training set has no batches")
        divided = self.engine.size > 1 or self.config.accumulate > 1
        if divided and not isinstance(self.data, SharedBatches):
            raise UserError("this training set has whole batches only: train in one process")

    def _open_log(self, resume: bool) -> None:
        position = self.position
        # Amid an epoch, a record of this very step can only be one that is yet to be written again.
        recorded = position.step if position.step_in_epoch == 0 else position.step - 1
        if self.config.tensorboard:
            self.board = TensorBoard(self.folder, recorded)
        self.log = RunLog(self.folder / LOG, recorded if resume else None)

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """While entered, TensorBoard is written to."""
        try:
            yield
        finally:
            if self.board is not None:
                self.board.close()

    @property
    def finished(self) -> bool:
        """Whether validation has ended the run."""
        return 0 < self.config.patience <= validations_since_best(self.position.scores)

    def epoch(self, interruption: Interruption) -> None:
        """The rest of the epoch under way, and what follows it."""
        config, position = self.config, self.position
        self.model.train()
        shown = position.step_in_epoch, position.totals["loss"] if position.step_in_epoch else 0.0
        with self._progress() as progress, closing(self._steps()) as steps:
            while True:
                step: Step | None = None
                failure: UserError | None = None
                try:
                    step = next(steps, None)
                except UserError as error:
                    failure = error
                except torch.OutOfMemoryError:  # Of an encoder that works for the batches.
                    failure = self.stepper.no_memory(position.step, position.epoch)
                asked, look, save = self._agree(failure, interruption, progress)
                if step is not None:
                    self._make(step, progress)
                if self.engine.size == 1:  # What came meanwhile; of several, all hear it later.
                    asked = interruption.asked
                if step is not None and config.tensorboard and position.step % SCALAR_STEPS == 0:
                    shown = self._show_steps(*shown)
                if step is not None and look:
                    self.stepper.check(position.epoch)
                    progress.show_loss(self.stepper.sums()["loss"] / position.step_in_epoch)
                if asked or (save and step is not None):
                    self._save()
                if asked:
                    raise self._interrupted()
                if step is None:
                    break
            self.stepper.check(position.epoch)
            sums = self.stepper.sums()
            means = {name: value / max(1, position.step_in_epoch) for name, value in sums.items()}
            progress.show_loss(means.get("loss", math.nan))
        due = (position.epoch + 1) % config.validate_every == 0
        due = self.validation is not None and (due or position.epoch + 1 == config.epochs)
        if due and self.saved_step < position.step:  # Validating takes long, and may go wrong.
            self._save()
        position.epoch += 1
        position.step_in_epoch = 0
        self.stepper.start({})
        record: dict[str, Any] = {
            "epoch": position.epoch,
            "step": position.step,
            "learning_rate": self._learning_rate(),
            **{f"train_{name}": value for name, value in means.items()},
        }
        if self.validation is not None and due:
            record.update(self._validate(self.validation))
        with self.engine.fail_together():
            if self.log is not None:
                self.log.write(record)
            if self.board is not None:
                self.board.write(record)
        self._save()

    def _steps(self) -> Generator[Step, None, None]:
        """What this process does of each step of the epoch that is left."""
        position, config = self.position, self.config
        if isinstance(self.data, SharedBatches):
            yield from self.data.shares(
                position.epoch,
                position.step_in_epoch,
                self.engine.rank,
                self.engine.size,
                config.accumulate,
            )
        else:
            for batch in self.data.batches(position.epoch, position.step_in_epoch):
                yield Step([Part(batch, 1)], 1)

    def _agree(
        self,
        failure: UserError | None,
        interruption: Interruption,
        progress: StepProgress,
    ) -> tuple[bool, bool, bool]:
        """Whether to stop behind this step, to look at its sums, and to save a checkpoint.

        The same to all processes. Raises the failure, if one of them has met one.
        """
        late = time.monotonic() - self.saved > self.config.checkpoint_seconds
        own = (
            interruption.asked,
            progress.is_loss_due,
            self.engine.is_main and late,
            failure is not None,
        )
        asked, look, save, failed = map(bool, self.engine.maximum(*map(int, own)))
        if failed:
            self.engine.share_failure(failure)
        return asked, look, save

    def _make(self, step: Step, progress: StepProgress) -> None:
        position = self.position
        factor = learning_rate_factor(self.config, position.step, self.total_steps, position.scores)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        self.stepper.make(step, position.step, position.epoch)
        if self.average is not None:
            self.average.update(position.step)
        position.step += 1
        position.step_in_epoch += 1
        progress.advance(step.examples)

    def _show_steps(self, since: int, before: float) -> tuple[int, float]:
        """Write the mean loss of the last steps for TensorBoard; all processes call this.

        since, before: where in the epoch it was written last, and the sum of the losses there.
        Gives back the same of now.
        """
        now, total = self.position.step_in_epoch, self.stepper.sums()["loss"]
        if self.board is not None:
            record = {
                "step": self.position.step,
                "steps/loss": (total - before) / (now - since),
                "steps/learning_rate": self._learning_rate(),
            }
            self.board.write(record)
        return now, total

    def _interrupted(self) -> BaseException:
        """What ends the run of this process; one of several says why."""
        if not self.engine.is_main:
            return SystemExit(128 + signal.SIGINT)
        return Interrupted(
            f"stopped after step {self.position.step}; go on from {self.path} with --resume"
        )

    def _learning_rate(self) -> float:
        """That of the last step."""
        factor = learning_rate_factor(
            self.config, max(0, self.position.step - 1), self.total_steps, self.position.scores
        )
        return float(self.optimizer.param_groups[0]["initial_lr"] * factor)

    def _save(self) -> None:
        self.stepper.check(self.position.epoch)
        self.position.totals = self.stepper.sums()
        states = self.engine.gather(random_state(next(self.model.parameters()).device))
        averages = None if self.average is None else self.average.tensors
        with self.engine.fail_together():
            if self.engine.is_main:
                save_checkpoint(
                    self.path, self.model, self.optimizer, self.position, averages, states
                )
        self.saved, self.saved_step = time.monotonic(), self.position.step

    def _validate(self, validation: Validation) -> dict[str, float]:
        position, engine = self.position, self.engine
        engine.broadcast_buffers(self.model)
        self.model.eval()
        with nullcontext() if self.average is None else self.average.in_use(), torch.no_grad():
            scores = engine.broadcast(validation.run())
            score = scores[validation.score]
            if math.isnan(score):
                failure = UserError(f"the validation score {validation.score!r} is not a number")
                engine.share_failure(failure)
            best = all(score > other for other in position.scores)
            position.scores.append(score)
            with engine.fail_together():
                if best and engine.is_main:
                    validation.keep(scores)
                if self.config.keep_last > 0 and engine.is_main and validation.save is not None:
                    count = self.config.keep_last
                    keep_model(self.folder, position.epoch, count, validation.save)
                if self.board is not None and validation.show is not None:
                    self.board.show(validation.show(), position.step)
        if engine.is_main:
            print(
                f"epoch {position.epoch}: "
                + ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
                + (" (best)" if best else ""),
                flush=True,
            )
        return scores

    @contextmanager
    def _progress(self) -> Iterator[StepProgress]:
        position = self.position
        progress = StepProgress(
            f"epoch {position.epoch + 1}/{self.config.epochs}",
            self.data.steps(position.epoch),
            position.step_in_epoch,
            self.data.unit if isinstance(self.data, SharedBatches) else "",
            self.engine.is_main,
        )
        try:
            yield progress
        finally:
            progress.close()


def _seed_of(seed: int, rank: int) -> int:
    """What a process of several draws dropout from."""
    return int(numpy.random.SeedSequence((seed, rank)).generate_state(1, numpy.uint64)[0] >> 1)
