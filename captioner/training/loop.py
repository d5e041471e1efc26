"""The training loop for every model that has `loss(batch)`."""

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from captioner.errors import UserError, refuse_missing
from captioner.files import read_text, refuse_os_errors, write_text
from captioner.progress import progress_bar
from captioner.training import checkpoint
from captioner.training.checkpoint import CHECKPOINT, Position
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine
from captioner.training.optimizer import Average, learning_rate_factor, make_optimizer
from captioner.training.step import Batches, TrainingStepper, seed_of

LOG, BOARD = "log.jsonl", "tensorboard"
SCALAR_STEPS = 100  # Between two losses for TensorBoard; an epoch may take hours.


@dataclass(frozen=True)
class Validated:
    """Scores by name, the texts that were scored, and the record for the model's folder."""

    scores: dict[str, float]
    texts: Sequence[str] = ()
    record: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation:
    """Validation between epochs, in evaluation mode and without gradients."""

    run: Callable[[], Validated]  # All processes call it; the scores of process 0 count.
    score: str  # The deciding one; higher is better.
    save_best: Callable[[Validated, int], None]  # Given its epoch; process 0 calls it.
    before: bool = False  # Also before the first step, as epoch 0.


class Interrupted(KeyboardInterrupt):
    """A run stopped on request, with its checkpoint saved. The message says how to resume."""


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

    model: has `loss(batch)`, which gives scalars to report: `loss` is the mean over the examples.
    folder: for `last.safetensors` (the checkpoint) and `log.jsonl`. Several machines must share it.
    resume: continue from the checkpoint, if there is one. The result is that of an uninterrupted
        run: bit for bit on a CPU with one or two processes, up to rounding with more.
    optimizer: in place of that of the config, over all parameters that require a gradient.
    engine: the processes that train together; default: this one, on the model's device.

    The caller seeds torch before making the model. Each process has torch's generator in the
    checkpoint. Raises `Interrupted` after Ctrl-C or SIGTERM at any process, with a new checkpoint.
    """
    engine = engine or Engine(next(model.parameters()).device)
    optimizer = optimizer or make_optimizer(model, config)
    run = _Run(model, data, config, folder, validation, optimizer, engine)
    run.begin(resume)
    with run.stopping_on_signals():
        if validation is not None and validation.before and not run.position.scores:
            run.save({"epoch": 0, "step": 0, **run.validate(validation)})
        while not run.is_finished():
            run.epoch()
    return run.position


@dataclass
class _Run:
    """The state of a run in one process, which alone changes its position."""

    model: nn.Module
    data: Batches
    config: TrainingConfig
    folder: Path
    validation: Validation | None
    optimizer: torch.optim.Optimizer
    engine: Engine
    position: Position = field(default_factory=Position)
    log: "RunLog | None" = None  # None but in process 0.
    is_stop_requested: bool = False

    def begin(self, resume: bool) -> None:
        """Refuse what cannot be trained, load the checkpoint and open the log."""
        config, engine = self.config, self.engine
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        self.path = self.folder / CHECKPOINT
        self.average = Average(self.model, config.average)
        with engine.fail_together():
            if len(self.data) == 0:
                raise UserError("there is nothing to train on: the training set has no batches")
            if engine.world_size > 1:
                torch.manual_seed(seed_of(config.seed, engine.rank) >> 1)  # dropout's
            logged_step = None
            if resume and os.path.exists(self.path):
                average, rank, world_size = self.average.tensors, engine.rank, engine.world_size
                self.position = checkpoint.load_checkpoint(
                    self.path, self.model, self.optimizer, average, rank, world_size
                )
                logged_step = self.position.step
                epoch = self.position.epoch
                if self.position.step_in_epoch:  # A record of this step is logged again.
                    logged_step -= 1
                    epoch += 1
                print(f"going on after step {self.position.step} (epoch {epoch})", flush=True)
            if engine.is_main:
                self.log = RunLog(self.folder, logged_step, config.tensorboard)
        self.stepper = TrainingStepper(self.model, self.optimizer, config, engine, self.position)
        self._set_learning_rate(max(0, self.position.step - 1))
        self.save_time, self.saved_step = time.monotonic(), self.position.step

    def epoch(self) -> None:
        """Make the rest of an epoch's steps, validate, log and save a checkpoint."""
        config, position = self.config, self.position
        self.model.train()
        epoch, done = position.epoch + 1, position.step_in_epoch
        name = f"epoch {epoch}/{config.epochs}"
        is_shown = self.engine.is_main
        bar = progress_bar(name, len(self.data), "steps", done, is_shown)
        with bar as progress, closing(self._batches()) as batches:
            for parts in batches:
                self._set_learning_rate(position.step)
                self.stepper.make(parts)
                self.average.update(position.step)
                position.step += 1
                position.step_in_epoch += 1
                progress.update()
                if self.log and config.tensorboard and position.step % SCALAR_STEPS == 0:
                    record = {"steps/loss": float(self.stepper.last_loss), "step": position.step}
                    self.log.write(record, to_file=False)
                self._save_or_stop()
            steps = max(1, position.step_in_epoch)
            means = {f"train_{name}": sum_ / steps for name, sum_ in self.stepper.sums().items()}
            progress.set_postfix_str(f"loss {means['train_loss']:.3f}", refresh=False)
        rate = self.optimizer.param_groups[0]["lr"]
        record = {"epoch": epoch, "step": position.step, "learning_rate": rate, **means}
        is_due = epoch % config.validate_every == 0 or epoch == config.epochs
        validation = self.validation if is_due else None
        if validation and self.saved_step < position.step:  # Validation takes long, and may fail.
            self.save()
        position.epoch, position.step_in_epoch = epoch, 0
        self.stepper.totals = {}
        if validation:
            record |= self.validate(validation)
        self.save(record)

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """While the block runs, SIGINT and SIGTERM request a stop; only in the main thread.

        A second one is a `KeyboardInterrupt`, but for several processes: torchrun repeats signals.
        """

        def request_stop(*_: object) -> None:
            if self.is_stop_requested and self.engine.world_size == 1:
                raise KeyboardInterrupt
            self.is_stop_requested = True

        is_main_thread = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM) if is_main_thread else ()
        previous = [signal.signal(number, request_stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, previous, strict=True):
                signal.signal(number, handler)

    def is_finished(self) -> bool:
        """Whether the run went through its epochs, or stopped early."""
        scores, patience = self.position.scores, self.config.patience
        waited = len(scores) - 1 - scores.index(max(scores)) if scores else 0
        return 0 < patience <= waited or self.position.epoch >= self.config.epochs

    def validate(self, validation: Validation) -> dict[str, float]:
        """Score the model, and keep it if it is the best so far."""
        position, engine = self.position, self.engine
        engine.broadcast_buffers(self.model)
        self.model.eval()
        with self.average.in_use(), torch.no_grad():
            validated = validation.run()
            scores = engine.gather(validated.scores)[0]
            score = scores[validation.score]
            is_best = all(score > other for other in position.scores)
            position.scores.append(score)
            with engine.fail_together():
                if math.isnan(score):
                    raise UserError(f"the validation score {validation.score!r} is not a number")
                if is_best and engine.is_main:
                    validation.save_best(validated, position.epoch)
        when = f"epoch {position.epoch}" if position.epoch else "before training"
        listed = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items()]
        print(f"{when}: {', '.join(listed)}{' (best)' if is_best else ''}", flush=True)
        return scores

    def _batches(self) -> Generator[list[Any], None, None]:
        """This process's parts of each batch that the epoch has left."""
        part_count = self.config.accumulate * self.engine.world_size
        parts = range(self.engine.rank, part_count, self.engine.world_size)
        position = self.position
        try:
            yield from self.data.batches(position.epoch, position.step_in_epoch, parts, part_count)
        except torch.OutOfMemoryError as error:  # An encoder computes the batches.
            raise self.stepper.explained(error) from None

    def _save_or_stop(self) -> None:
        """Save a checkpoint if it is time, or stop with one if a process had a signal."""
        is_late = time.monotonic() - self.save_time > self.config.checkpoint_seconds
        flags = torch.tensor([self.is_stop_requested, self.engine.is_main and is_late]).int()
        stop, save = self.engine.sum(flags).tolist()
        if stop or save:
            self.save()
        if stop and not self.engine.is_main:
            raise SystemExit(128 + signal.SIGINT)
        if stop:
            step = self.position.step
            raise Interrupted(f"stopped after step {step}; resume from {self.path} with --resume")

    def _set_learning_rate(self, step: int) -> None:
        steps = self.config.epochs * len(self.data)
        factor = learning_rate_factor(self.config, step, steps, self.position.scores)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def save(self, record: dict[str, Any] | None = None) -> None:
        """Save a checkpoint. record: of an epoch that ended, logged before."""
        position, stepper = self.position, self.stepper
        position.totals, position.scaling = stepper.sums(), stepper.scaler.state_dict()
        states = self.engine.gather(checkpoint.random_state(self.engine.device))
        with self.engine.fail_together():
            if self.log is not None:
                if record is not None:
                    self.log.write(record)
                average = self.average.tensors
                checkpoint.save_checkpoint(
                    self.path, self.model, self.optimizer, position, average, states
                )
        self.save_time, self.saved_step = time.monotonic(), position.step


class RunLog:
    """Appends records to `log.jsonl` and TensorBoard, each with its `step`.

    resume_at: later records, which will be written again, are removed, and hidden in TensorBoard.
    """

    def __init__(self, folder: Path, resume_at: int | None = None, tensorboard: bool = False):
        self._path = folder / LOG
        self._board = None
        if tensorboard:
            purged = resume_at + 1 if resume_at else None
            with refuse_os_errors(f"cannot write {folder / BOARD}"):
                self._board = summary_writer()(str(folder / BOARD), purge_step=purged)
        kept = []
        if resume_at is not None and os.path.exists(self._path):
            for line in read_text(self._path, "run log").split("\n"):
                # A killed run may leave an incomplete last line.
                with suppress(ValueError, KeyError, TypeError):
                    if json.loads(line)["step"] <= resume_at:
                        kept.append(f"{line}\n")
        write_text(self._path, "".join(kept))

    def write(self, record: dict[str, Any], to_file: bool = True) -> None:
        """Append one record. to_file: not only for TensorBoard."""
        with refuse_os_errors(f"cannot write {self._path.parent}"):
            if to_file:
                with self._path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if self._board is not None:
                for name in record.keys() - {"step"}:
                    self._board.add_scalar(name, record[name], record["step"])
                self._board.flush()


def summary_writer() -> Any:
    """Torch's writer for TensorBoard."""
    with refuse_missing("training.tensorboard needs the package tensorboard", "tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter
