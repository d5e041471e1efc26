"""The training loop for every model that has `loss(batch)`."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from captioner.devices import has_bfloat16
from captioner.errors import UserError
from captioner.progress import progress_bar
from captioner.training.checkpoint import (
    Position,
    load_checkpoint,
    random_state,
    save_checkpoint,
)
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine
from captioner.training.log import RunLog, ShownExample, TensorBoard
from captioner.training.optimization import (
    Average,
    learning_rate_factor,
    make_optimizer,
    validations_since_best,
)
from captioner.training.step import Batches, Step, Stepper, seed_of

CHECKPOINT, LOG = "last.safetensors", "log.jsonl"

SCALAR_STEPS = 100
"""Steps between two records of the loss for TensorBoard; an epoch may take hours."""


@dataclass(frozen=True)
class Validation:
    """Validation between epochs.

    run: returns scores by name; the model is in evaluation mode, without gradients. All processes
        call it, with the same weights; the scores of process 0 count.
    score: the name of the deciding score; higher is better.
    save_best: saves the model that is the best so far, with its scores and epoch; process 0 calls
        it.
    examples: the model's outputs for a few examples, for TensorBoard; process 0 calls it after
        `run`.
    before: whether to validate before the first step too, as epoch 0; a model that was trained
        before is kept until an epoch surpasses it.
    """

    run: Callable[[], dict[str, float]]
    score: str
    save_best: Callable[[dict[str, float], int], None]
    examples: Callable[[], Sequence[ShownExample]] | None = None
    before: bool = False


def train(
    model: nn.Module,
    data: Batches,
    config: TrainingConfig,
    folder: Path,
    validation: Validation | None = None,
    resume: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
    engine: Engine | None = None,
) -> Position:
    """Train a model; returns the position at which the run ended.

    model: has `loss(batch)`, which gives scalars to report: `loss` is the mean loss over the
        examples of the batch.
    folder: for `last.safetensors` (the checkpoint) and `log.jsonl`. Several machines must share it.
    resume: continue from the checkpoint, if there is one. The result is that of an uninterrupted
        run: bit for bit on a CPU with one or two processes. With more, torch adds the gradients of
        the first step after a start in another order, which changes numbers by some 2e-7 of their
        size. Sums that several processes log for an interrupted epoch may differ in the last digit.
    optimizer: in place of that of the config, over all parameters that require a gradient; the
        config's `optimizer`, `learning_rate` and `weight_decay` have no effect then.
    engine: the processes that train together; default: this one, on the model's device. All of
        them call this with the same model, data and config; process 0 prints and writes.

    The caller seeds torch before making the model. Dropout draws from torch's global generator,
    whose state is part of the checkpoint; each process has its own.
    Raises `UserError` when a loss, gradient, weight or sampling probability is not finite, when
    there is not enough memory and when the disk is full; the last checkpoint stays whole. Raises
    `Interrupted` after Ctrl-C or SIGTERM at any process, with a new checkpoint. One of several
    processes raises it; the others exit, at the latest when they leave the engine.
    """
    engine = engine or Engine(next(model.parameters()).device)
    run = _Run(model, data, config, folder, validation, resume, optimizer, engine)
    interruption = Interruption(exit_on_second=engine.world_size == 1)
    with interruption, closing(run):
        if validation is not None and validation.before and not run.position.scores:
            run.validate_start(validation)
        while run.position.epoch < config.epochs and not run.is_finished:
            run.epoch(interruption)
    return run.position


SLOW_BFLOAT16 = (
    "this machine has no instructions for bfloat16, which is many times slower than float32 here: "
    "set training.precision=float32"
)


class Interrupted(KeyboardInterrupt):
    """A run stopped on request, with its checkpoint saved. The message says how to resume."""


class Interruption:
    """Within it, SIGINT and SIGTERM set `is_requested`; no effect outside the main thread."""

    def __init__(self, exit_on_second: bool = True) -> None:
        """exit_on_second: whether a second signal ends the process; torchrun repeats signals."""
        self.is_requested = False
        self._exit_on_second = exit_on_second
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.is_requested = True
        if self._exit_on_second:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()


class _Run:
    """The state of a run in one process."""

    def __init__(
        self,
        model: nn.Module,
        data: Batches,
        config: TrainingConfig,
        folder: Path,
        validation: Validation | None,
        resume: bool,
        optimizer: torch.optim.Optimizer | None,
        engine: Engine,
    ) -> None:
        self.model, self.data, self.config, self.folder = model, data, config, folder
        self.validation, self.engine = validation, engine
        self.optimizer = make_optimizer(model, config) if optimizer is None else optimizer
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        self.average = Average(model, config.average) if config.average > 0 else None
        self.path = folder / CHECKPOINT
        self.position = Position()
        with engine.fail_together():
            if data.steps(0) == 0:
                raise UserError("there is nothing to train on: the training set has no batches")
            if config.precision == "float16" and engine.device.type == "mps":
                raise UserError("training.precision float16 is for cuda, not for mps: set float32")
            if engine.world_size > 1:
                torch.manual_seed(seed_of(config.seed, engine.rank) >> 1)  # dropout's
            resumed = resume and self.path.exists()
            if resumed:
                averages = None if self.average is None else self.average.tensors
                self.position = load_checkpoint(
                    self.path, model, self.optimizer, averages, engine.rank, engine.world_size
                )
            self.log: RunLog | None = None
            self.board: TensorBoard | None = None
            if engine.is_main:
                if resumed:
                    epoch = self.position.epoch + (self.position.step_in_epoch > 0)
                    print(f"going on after step {self.position.step} (epoch {epoch})", flush=True)
                if config.precision == "bfloat16" and not has_bfloat16(engine.device):
                    print(SLOW_BFLOAT16, file=sys.stderr)
                self._open_log(resumed)
        self.stepper = Stepper(model, self.optimizer, config, engine, self.path)
        self.stepper.reset(self.position.totals)
        self.stepper.restore_scaling(self.position.scaling)
        self.total_steps = config.epochs * data.steps(0)
        self.save_time, self.saved_step = time.monotonic(), self.position.step

    def _open_log(self, resumed: bool) -> None:
        position = self.position
        # A record of this step is rewritten at the end of the epoch.
        recorded = position.step if position.step_in_epoch == 0 else position.step - 1
        if self.config.tensorboard:
            self.board = TensorBoard(self.folder, recorded)
        self.log = RunLog(self.folder / LOG, recorded if resumed else None)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self.board is not None:
            self.board.close()

    @property
    def is_finished(self) -> bool:
        """Whether early stopping ended the run."""
        return 0 < self.config.patience <= validations_since_best(self.position.scores)

    def validate_start(self, validation: Validation) -> None:
        """Validate the model before training, and log it as epoch 0."""
        self._finish_epoch({"epoch": 0, "step": 0, **self._validate(validation)})

    def epoch(self, interruption: Interruption) -> None:
        """Train the rest of the epoch, validate, log and save."""
        config, position = self.config, self.position
        self.model.train()
        recorded = (
            position.step_in_epoch,
            position.totals["loss"] if position.step_in_epoch else 0.0,
        )
        batches = self.data.batches(
            position.epoch,
            position.step_in_epoch,
            self.engine.rank,
            self.engine.world_size,
            config.accumulate,
        )
        examples, began, speed = 0, time.monotonic(), f"0 {self.data.unit}/s"
        progress = progress_bar(
            f"epoch {position.epoch + 1}/{config.epochs}",
            self.data.steps(position.epoch),
            "steps",
            position.step_in_epoch,
            self.engine.is_main,
        )
        with progress, closing(batches) as steps:
            while True:
                step: Step | None = None
                failure: UserError | None = None
                try:
                    step = next(steps, None)
                except UserError as error:
                    failure = error
                except torch.OutOfMemoryError:  # An encoder computes the batches.
                    failure = self.stepper.memory_error(position.step, position.epoch)
                stop, save = self._agree(failure, interruption)
                if step is not None:
                    self._make(step)
                    examples += step.examples
                    rate = examples / max(1e-3, time.monotonic() - began)
                    speed = f"{rate:,.0f} {self.data.unit}/s"
                    progress.set_postfix_str(speed, refresh=False)
                    progress.update()
                if self.engine.world_size == 1:  # Several processes agree before the next step.
                    stop = interruption.is_requested
                if step is not None and config.tensorboard and position.step % SCALAR_STEPS == 0:
                    recorded = self._record_steps(*recorded)
                if stop or (save and step is not None):
                    self._save()
                if stop:
                    raise self._interrupted()
                if step is None:
                    break
            self.stepper.check(position.epoch)
            sums = self.stepper.sums()
            means = {name: value / max(1, position.step_in_epoch) for name, value in sums.items()}
            progress.set_postfix_str(f"{speed}, loss {means['loss']:.3f}", refresh=False)
        is_due = (position.epoch + 1) % config.validate_every == 0
        is_due = self.validation is not None and (is_due or position.epoch + 1 == config.epochs)
        if is_due and self.saved_step < position.step:  # Validation takes long, and may fail.
            self._save()
        position.epoch += 1
        position.step_in_epoch = 0
        self.stepper.reset({})
        record: dict[str, Any] = {
            "epoch": position.epoch,
            "step": position.step,
            "learning_rate": self._learning_rate(),
            **{f"train_{name}": value for name, value in means.items()},
        }
        if self.validation is not None and is_due:
            record.update(self._validate(self.validation))
        self._finish_epoch(record)

    def _finish_epoch(self, record: dict[str, Any]) -> None:
        """Log an epoch and save a checkpoint."""
        with self.engine.fail_together():
            if self.log is not None:
                self.log.write(record)
            if self.board is not None:
                self.board.write(record)
        self._save()

    def _agree(self, failure: UserError | None, interruption: Interruption) -> tuple[bool, bool]:
        """Whether to stop after this step, and to save a checkpoint.

        The same for all processes. Stops all of them if one has a failure.
        """
        is_late = time.monotonic() - self.save_time > self.config.checkpoint_seconds
        wishes = (
            interruption.is_requested,
            self.engine.is_main and is_late,
            failure is not None,
        )
        stop, save, failed = map(bool, self.engine.maximum(*map(int, wishes)))
        if failed:
            self.engine.share_failure(failure)
        return stop, save

    def _make(self, step: Step) -> None:
        position = self.position
        factor = learning_rate_factor(self.config, position.step, self.total_steps, position.scores)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        self.stepper.make(step, position.step, position.epoch)
        if self.average is not None:
            self.average.update(position.step)
        position.step += 1
        position.step_in_epoch += 1

    def _record_steps(self, since: int, before: float) -> tuple[int, float]:
        """Write the mean loss since the last record for TensorBoard; all processes call this.

        since, before: the step in the epoch of the last record, and the sum of the losses there.
        Returns those of this record.
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
        """The exception that ends this process; process 0 says why."""
        if not self.engine.is_main:
            return SystemExit(128 + signal.SIGINT)
        return Interrupted(
            f"stopped after step {self.position.step}; resume from {self.path} with --resume"
        )

    def _learning_rate(self) -> float:
        """The learning rate of the last step."""
        factor = learning_rate_factor(
            self.config, max(0, self.position.step - 1), self.total_steps, self.position.scores
        )
        return float(self.optimizer.param_groups[0]["initial_lr"] * factor)

    def _save(self) -> None:
        self.stepper.check(self.position.epoch)
        self.position.totals, self.position.scaling = self.stepper.sums(), self.stepper.scaling
        states = self.engine.gather(random_state(next(self.model.parameters()).device))
        averages = None if self.average is None else self.average.tensors
        with self.engine.fail_together():
            if self.engine.is_main:
                save_checkpoint(
                    self.path, self.model, self.optimizer, self.position, averages, states
                )
        self.save_time, self.saved_step = time.monotonic(), self.position.step

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
                    validation.save_best(scores, position.epoch)
                if self.board is not None and validation.examples is not None:
                    self.board.show(validation.examples(), position.step)
        if engine.is_main:
            print(
                (f"epoch {position.epoch}: " if position.epoch else "before training: ")
                + ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
                + (" (best)" if best else ""),
                flush=True,
            )
        return scores
