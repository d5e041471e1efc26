"""One step of gradient descent, by one process or many, and its report."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy
import torch
from torch import Tensor, nn

from captioner.devices import autocast
from captioner.errors import UserError
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine

NORM = "gradient_norm"

LARGEST_WEIGHT = 1e18
"""Larger weights overflow float32 when squared."""

_NAN_ERROR = "is not a number"
"""Error text of a forward pass that means NaN or infinity."""

_NOT_FINITE = f"{_NAN_ERROR}, or too large for one,"

_MEMORY_ERRORS = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
"""Error texts of devices that do not raise `torch.OutOfMemoryError`."""


def seed_of(*numbers: int) -> int:
    """A seed of 64 bits made of several numbers."""
    return int(numpy.random.SeedSequence(numbers).generate_state(1, numpy.uint64)[0])


class MicroBatch(NamedTuple):
    """A part of a step's batch that fits into memory.

    batch: the argument of the model's `loss`. examples: the number of examples; 0 for a masked
    dummy example, so that every process takes part.
    """

    batch: Any
    examples: int


class Step(NamedTuple):
    """One process's part of a training step.

    micro_batches: computed one after the other, before the optimiser's step.
    examples: number of examples of the whole step, over all micro-batches and processes.
    """

    micro_batches: Sequence[MicroBatch]
    examples: int


class Batches(Protocol):
    """A training set in batches, which depend on the epoch only and can be divided."""

    unit: ClassVar[str]
    """The name of the examples, in the plural."""

    def steps(self, epoch: int) -> int:
        """The number of batches of the epoch, the same for every epoch."""

    def batches(
        self, epoch: int, first: int, rank: int, world_size: int, micro_batches: int
    ) -> Generator[Step, None, None]:
        """The part of process `rank` of each batch, from number `first` on.

        micro_batches: their number in a step; the last ones have no examples if the batch is too
        small.
        """


class _Loss(nn.Module):
    """The model's loss as the forward function of a module, which an engine can wrap."""

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self.precision: torch.dtype = getattr(torch, config.precision)

    def forward(self, batch: Any, device: torch.device) -> dict[str, Tensor]:
        with autocast(device, self.precision):
            report: dict[str, Tensor] = self.model.loss(batch)  # type: ignore[operator]
        return report


class Stepper:
    """Makes steps, and sums their reports on the device.

    The gradient of a step is that of the mean loss over its examples, however many
    micro-batches and processes they are divided among. On a GPU, and with several processes, a step
    waits for no result: `check` raises its error later, and must be called before anything is
    saved. From the failed step on, gradients are set to zero, so that the weights stay finite. One
    process on a CPU raises the error before it changes the weights.

    In float16 gradients are scaled, so that small ones do not vanish (Micikevicius et al. 2018,
    *Mixed Precision Training*). A step whose gradient overflows is left out and halves the scale;
    below a scale of 1 it is a failure. With rmsprop such a step waits for its gradient, to see
    whether it overflowed; with adam, which is fused, it does not.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        engine: Engine,
        checkpoint: Path,
    ) -> None:
        """checkpoint: file that error messages name."""
        self.optimizer, self.config, self.engine = optimizer, config, engine
        self._checkpoint = checkpoint
        self._wrapped = engine.wrap(_Loss(model, config))
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        device = self._parameters[0].device
        self._device = device
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
        self._is_synchronous = device.type == "cpu" and engine.world_size == 1
        self._last_step = -1
        self._sums: dict[str, Tensor] = {}
        # The first failed step, its loss and gradient norm; step -1 for none.
        self._failure = torch.tensor([-1.0, 0.0, 0.0], dtype=self._dtype, device=device)

    def make(self, step: Step, number: int, epoch: int) -> None:
        """Make step number `number` of the run, in an epoch, both counted from 0.

        Raises `UserError` as `check` does, and when there is not enough memory. One process may
        raise it while others wait for it, which end when it leaves its engine.
        """
        try:
            self._make(step, number, epoch)
        except (RuntimeError, UserError) as error:
            if _is_memory_error(error):
                raise self.memory_error(number, epoch) from None
            if self.config.compile and type(error).__module__.startswith("torch._"):
                reason = " ".join(str(error).splitlines()[:2]).strip()
                raise UserError(f"training.compile: torch cannot compile here: {reason}") from None
            if not self._is_nan_error(error):
                raise
            lost = self._lost(f"the model's output {_NOT_FINITE}", number, epoch)
            raise (self._noted_failure(epoch) or lost) from None

    def _make(self, step: Step, number: int, epoch: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss: Tensor | None = None
        for place, part in enumerate(step.micro_batches):
            share = part.examples / step.examples
            is_last = place + 1 == len(step.micro_batches)
            with nullcontext() if is_last else self.engine.no_sync(self._wrapped):
                report = self._wrapped(part.batch.to(self._device), self._device)
                # The engine averages over processes; the sum is needed.
                weight = share * self.engine.world_size
                part_loss = report["loss"] if weight == 1 else report["loss"] * weight
                self._scaler.scale(part_loss).backward()
            self._add(report, share)
            if part.examples > 0:
                loss = part_loss.detach() if loss is None else loss + part_loss.detach()
        self._scaler.unscale_(self.optimizer)
        has_overflowed = self._has_overflowed() if self._scaler.is_enabled() else None
        clip = self.config.clip_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self._parameters, clip)
        if has_overflowed is not None:
            norm = norm.masked_fill(has_overflowed, 0.0)
        self._note_failure(number, norm if loss is None else loss / self.engine.world_size, norm)
        has_failed = self._failure[0] >= 0
        if self._is_synchronous:
            if failure := self._noted_failure(epoch):
                raise failure
        else:
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.masked_fill_(has_failed, 0.0)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self._last_step = number
        # All processes have the same norm, and their sums are added up.
        self._add({NORM: norm}, 1 / self.engine.world_size)

    @property
    def scaling(self) -> dict[str, float]:
        """The scale of float16's gradients, for a checkpoint; empty for other precisions."""
        return self._scaler.state_dict()

    def restore_scaling(self, scaling: dict[str, float]) -> None:
        """Set the scale to that of a checkpoint, if it has one."""
        if scaling:
            self._scaler.load_state_dict(scaling)

    def check(self, epoch: int) -> None:
        """Stop all processes, with a `UserError`, if a loss, gradient or weight is not finite.

        Also if a weight exceeds `LARGEST_WEIGHT`. epoch: that of the last step.
        """
        failure = self._noted_failure(epoch)
        if failure is None and not self._has_sound_weights():
            failure = self._lost(f"a weight {_NOT_FINITE}", self._last_step, epoch)
        self.engine.share_failure(failure)

    def memory_error(self, number: int, epoch: int) -> UserError:
        """The error when there is not enough memory for a step."""
        return UserError(
            f"there is not enough memory on {self._device} for step {number + 1}, in epoch "
            f"{epoch + 1}: lower training.batch_size (data.batch_tokens of translation), or cut "
            f"the steps into parts by training.accumulate{self._checkpoint_note()}"
        )

    def sums(self) -> dict[str, float]:
        """The sums of the steps' reports over all processes, each step's a mean."""
        if not self._sums:
            return {}
        values = self.engine.sum(torch.stack(list(self._sums.values())))
        return dict(zip(self._sums, values.tolist(), strict=True))

    def reset(self, sums: dict[str, float]) -> None:
        """Set the sums, which are those over all processes."""
        self._sums = {
            name: torch.tensor(
                value if self.engine.is_main else 0.0, dtype=self._dtype, device=self._device
            )
            for name, value in sums.items()
        }

    def _add(self, report: dict[str, Tensor], share: float) -> None:
        for name, value in report.items():
            number = value.detach().to(self._device, self._dtype)
            # A dummy example may give NaN.
            number = number * share if share > 0 else torch.zeros_like(number)
            self._sums[name] = self._sums[name] + number if name in self._sums else number

    def _has_overflowed(self) -> Tensor:
        """Whether float16 overflowed in the gradient, and a lower scale may do."""
        gradients = [each.grad for each in self._parameters if each.grad is not None]
        largest = nn.utils.get_total_norm(gradients, math.inf)
        return ~largest.isfinite() & (self._scaler.scale(torch.ones_like(largest)) >= 1)

    def _note_failure(self, number: int, loss: Tensor, norm: Tensor) -> None:
        """Note this step if it is the first that failed, without waiting for its result."""
        values = torch.stack([torch.full_like(norm, number), loss.to(norm.dtype), norm])
        is_first = ~values.isfinite().all() & (self._failure[0] < 0)
        self._failure = torch.where(is_first, values.to(self._dtype), self._failure)

    def _noted_failure(self, epoch: int) -> UserError | None:
        number, loss, norm = self._failure.tolist()
        if number < 0:
            return None
        return self._lost(f"the loss is {loss} and the norm of its gradient {norm}", number, epoch)

    def _has_sound_weights(self) -> bool:
        with torch.no_grad():
            largest = nn.utils.get_total_norm(self._parameters, math.inf)
        return float(largest) <= LARGEST_WEIGHT  # False for NaN.

    def _is_nan_error(self, error: Exception) -> bool:
        """Whether a step raised this error because of NaN or infinity."""
        if _NAN_ERROR in str(error):
            return True
        if isinstance(error, UserError):
            return False
        try:
            return not self._has_sound_weights()
        except RuntimeError:  # The device has failed.
            return False

    def _lost(self, reason: str, number: float, epoch: int) -> UserError:
        return UserError(
            f"{reason} at step {round(number) + 1}, in epoch {epoch + 1}: lower learning_rate or "
            f"clip_norm{self._checkpoint_note()}"
        )

    def _checkpoint_note(self) -> str:
        return f"; {self._checkpoint} is from before it" if self._checkpoint.exists() else ""


def _is_memory_error(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MEMORY_ERRORS)
