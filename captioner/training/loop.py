"""The training loop for every model that has `loss(batch)`."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captioner.arrays import Array
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.memory_limits import peak_memory
from captioner.progress import progress_bar
from captioner.training import checkpoint
from captioner.training.batches import AnyBatches
from captioner.training.checkpoint import CHECKPOINT, Position
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Processes
from captioner.training.optimizer import Average, learning_rate_factor, warn_of_spans
from captioner.training.reports import StepReports
from captioner.training.run_log import RunLog, deciding_scores

SCALAR_STEPS = 100  # Between two losses for TensorBoard; an epoch may take hours.


class Generated(NamedTuple):
    """The texts of a batch, and the cross-entropy of its references: nats in all, and tokens."""

    texts: Sequence[str]
    nats: float
    tokens: int


@dataclass(frozen=True)
class Validated:
    """Scores by name, the texts that were scored, and the record for the model's folder.

    scores: among them the deciding one, and maybe `perplexity`; see `deciding_scores`.
    pictures: (height, width, 3), uint8, by name, for TensorBoard.
    """

    scores: dict[str, float]
    texts: Sequence[str] = ()
    record: Mapping[str, object] = field(default_factory=dict)
    pictures: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation:
    """Validation between epochs, in evaluation mode and without gradients."""

    run: Callable[[], Validated]  # All processes call it; the scores of process 0 count.
    score: str  # The deciding one; higher is better.
    save_best: Callable[[Validated, int], None]  # Given its epoch; process 0 calls it.
    before: bool = False  # Also before the first step, as epoch 0.


class Interrupted(KeyboardInterrupt):
    """A run stopped on request, with its checkpoint saved. The message says how to resume."""


@dataclass
class Trainer:
    """A run in one process: what it trains, its log, and its position, which it alone changes.

    The gradient of a step is that of the mean loss over its examples, however many parts and
    processes they are divided among. In float16 gradients are scaled (Micikevicius et al. 2018,
    *Mixed Precision Training*): a step whose gradient overflows is left out and halves the scale.

    model: has `loss(batch)`, which gives scalars to report: `loss` is the mean over the examples.
    folder: for `last.safetensors` (the checkpoint) and `log.jsonl`. Several machines must share it.
    optimizer: as from `make_optimizer`. processes: those that train together; default: this one,
        on a CPU.
    origin: what makes the run, for the log: machine, versions, data.
    resume: continue from the checkpoint, if there is one. The result is that of an uninterrupted
        run: bit for bit on a CPU with one or two processes, up to rounding with more.

    The caller seeds torch before making the model. Each process has torch's generator in the
    checkpoint. Raises `UserError` where there is nothing to train on.
    """

    model: nn.Module
    data: AnyBatches
    config: TrainingConfig
    folder: Path
    optimizer: torch.optim.Optimizer
    processes: Processes = field(default_factory=Processes)
    validation: Validation | None = None
    origin: Mapping[str, object] | None = None
    resume: InitVar[bool] = False

    def __post_init__(self, resume: bool) -> None:
        config, processes = self.config, self.processes
        for group in self.optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        self.path = self.folder / CHECKPOINT
        self.average = Average(self.model, config.average)
        self.log: RunLog | None = None  # In process 0.
        self.is_stop_requested = False
        with processes.fail_together():
            if len(self.data) == 0:
                raise UserError("there is nothing to train on: the training set has no batches")
            if processes.world_size > 1:
                torch.manual_seed(seed_of(config.seed, processes.rank) >> 1)  # dropout's
            position, logged_step = Position(), -1
            if resume and os.path.exists(self.path):
                rank, world_size, average = processes.rank, processes.world_size, self.average
                position = checkpoint.load_checkpoint(
                    self.path, self.model, self.optimizer, average.tensors, rank, world_size
                )
                is_within = position.step_in_epoch > 0
                logged_step = position.step - is_within  # A record of this step is logged again.
                epoch = position.epoch + is_within
                print(f"going on after step {position.step} (epoch {epoch})", flush=True)
            if processes.is_main:
                self.log = RunLog(self.folder, logged_step, config.tensorboard)
                if self.origin not in [None, *(record.get("run") for record in self.log.kept)]:
                    self.log.write({"step": max(0, logged_step), "run": self.origin})
                warn_of_spans(config, config.epochs * len(self.data))
        self.position = position
        self._loss = processes.wrap(_Loss(self.model, config.precision))
        self._parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._device = self._parameters[0].device
        is_float16 = config.precision == "float16"
        self.scaler = torch.amp.GradScaler(self._device.type, enabled=is_float16)
        if position.scaling:
            self.scaler.load_state_dict(position.scaling)
        self.reports = StepReports(self._parameters, self.scaler, processes, position)
        self._set_learning_rate(max(0, position.step - 1))
        self.save_time, self.saved_step = time.monotonic(), position.step

    def train(self) -> Position:
        """Train; returns the position at which the run ended.

        Raises `Interrupted` after Ctrl-C or SIGTERM at any process, with a new checkpoint.
        """
        validation = self.validation
        with self.stopping_on_signals():
            if validation is not None and validation.before and not self.position.scores:
                self.save({"epoch": 0, "step": 0, **self.validate(validation)})
            while not self.position.is_finished(self.config):
                self.epoch()
        return self.position

    def epoch(self) -> None:
        """Make the rest of an epoch's steps, validate, log and save a checkpoint."""
        config, position = self.config, self.position
        self.model.train()
        epoch, done = position.epoch + 1, position.step_in_epoch
        name = f"epoch {epoch}/{config.epochs}"
        start = time.perf_counter()
        bar = progress_bar(name, len(self.data), "steps", done, self.processes.is_main)
        with bar as progress, closing(self._batches()) as batches:
            for parts in batches:
                self._set_learning_rate(position.step)
                self.step(parts)
                self.average.update(position.step)
                position.step += 1
                position.step_in_epoch += 1
                progress.update()
                if self.log and config.tensorboard and position.step % SCALAR_STEPS == 0:
                    scalars = {"steps/loss": float(self.reports.last_loss), "step": position.step}
                    scalars["steps/learning_rate"] = self.optimizer.param_groups[0]["lr"]
                    self.log.write(scalars, to_file=False)
                self._save_or_stop()
            sums, steps = self.reports.sums(), position.step_in_epoch
            means = {f"train_{name}": total / steps for name, total in sums.items()}
            progress.set_postfix_str(f"loss {means['train_loss']:.3f}", refresh=False)
        rate = self.optimizer.param_groups[0]["lr"]
        seconds = time.perf_counter() - start
        speed = self.data.example_count * (steps - done) / len(self.data) / seconds
        record: dict[str, object] = {"epoch": epoch, "step": position.step, "learning_rate": rate}
        record |= {**means, "seconds": seconds, "examples_per_second": speed}
        is_due = epoch % config.validate_every == 0 or epoch == config.epochs
        validation = self.validation if is_due else None
        if validation and self.saved_step < position.step:  # Validation takes long, and may fail.
            self.save()
        position.epoch, position.step_in_epoch = epoch, 0
        self.reports.totals = {}
        if validation:
            record |= self.validate(validation)
        record["total_seconds"] = time.perf_counter() - start
        record["memory"] = torch.cuda.max_memory_allocated() or peak_memory()  # 0 on CPUs.
        self.save(record)

    def step(self, parts: Sequence[Any]) -> None:
        """Make a step, given this process's parts of the batch.

        After an error, processes that wait for this one end when it leaves `processes`.
        """
        world_size, scaler = self.processes.world_size, self.scaler
        try:
            self.optimizer.zero_grad(set_to_none=True)
            for number, part in enumerate(parts, 1):
                is_last = world_size == 1 or number == len(parts)
                share = getattr(part, "share", 1.0)
                with nullcontext() if is_last else self._loss.no_sync():  # type: ignore[operator]
                    report = self._loss(part.to(self._device), self._device)
                    # Gradients are averaged over processes; the sum is needed.
                    scaler.scale(report["loss"] * (share * world_size)).backward()
                self.reports.add(report, share)
            scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm or math.inf)
            self.reports.add_norm(norm)
            scaler.step(self.optimizer)
            scaler.update()
        except (RuntimeError, UserError) as error:
            raise self.reports.explained(error) from None

    def validate(self, validation: Validation) -> dict[str, float]:
        """Score the model, and keep it if it is the best so far."""
        position, processes = self.position, self.processes
        processes.broadcast_buffers(self.model)
        self.model.eval()
        with self.average.in_use(), torch.no_grad():
            validated = validation.run()
            scores = processes.gather(validated.scores)[0]
            deciding = deciding_scores(scores, validation.score)
            is_best = all(deciding > others for others in position.scores)
            position.scores.append(deciding)
            with processes.fail_together():
                if any(map(math.isnan, deciding)):
                    names = f"{validation.score!r} or perplexity"
                    raise UserError(f"the validation's score {names} is not a number")
                if self.log is not None:
                    self.log.show(validated.pictures, position.step)
                if is_best and processes.is_main:
                    validation.save_best(validated, position.epoch)
        when = f"epoch {position.epoch}" if position.epoch else "before training"
        listed = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in scores.items()]
        print(f"{when}: {', '.join(listed)}{' (best)' if is_best else ''}", flush=True)
        return scores

    def save(self, record: Mapping[str, object] | None = None) -> None:
        """Save a checkpoint. record: of an epoch that ended, logged before."""
        position = self.position
        position.totals, position.scaling = self.reports.sums(), self.scaler.state_dict()
        states = self.processes.gather(checkpoint.random_state(self.processes.device))
        with self.processes.fail_together():
            if self.log is not None:
                if record is not None:
                    self.log.write(record)
                checkpoint.save_checkpoint(
                    self.path, self.model, self.optimizer, position, self.average.tensors, states
                )
        self.save_time, self.saved_step = time.monotonic(), position.step

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """While the block runs, SIGINT and SIGTERM request a stop; only in the main thread.

        A second one is a `KeyboardInterrupt`, but for several processes: torchrun repeats signals.
        """

        def request_stop(*_: object) -> None:
            if self.is_stop_requested and self.processes.world_size == 1:
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

    def _batches(self) -> Generator[list[Any], None, None]:
        """This process's parts of each batch that the epoch has left."""
        part_count = self.config.accumulate * self.processes.world_size
        parts = range(self.processes.rank, part_count, self.processes.world_size)
        position = self.position
        try:
            yield from self.data.batches(position.epoch, position.step_in_epoch, parts, part_count)
        except torch.OutOfMemoryError as error:  # An encoder computes the batches.
            raise self.reports.explained(error) from None

    def _save_or_stop(self) -> None:
        """Save a checkpoint if it is time, or stop with one if a process had a signal."""
        is_late = time.monotonic() - self.save_time > self.config.checkpoint_seconds
        flags = torch.tensor([self.is_stop_requested, self.processes.is_main and is_late]).int()
        stop, save = self.processes.sum(flags).tolist()
        if stop or save:
            self.save()
        if stop and not self.processes.is_main:
            raise SystemExit(128 + signal.SIGINT)
        if stop:
            step = self.position.step
            raise Interrupted(f"stopped after step {step}; resume from {self.path} with --resume")

    def _set_learning_rate(self, step: int) -> None:
        steps = self.config.epochs * len(self.data)
        factor = learning_rate_factor(self.config, step, steps, self.position.scores)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor


def seed_of(*numbers: int) -> int:
    """A seed of 64 bits made of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class _Loss(nn.Module):
    """The model's loss as the forward function of a module, for `Processes.wrap`."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model = model
        self.precision: torch.dtype = getattr(torch, precision)

    def forward(self, batch: object, device: torch.device) -> dict[str, Tensor]:
        with autocast(device, self.precision):
            return self.model.loss(batch)  # type: ignore[no-any-return, operator]
