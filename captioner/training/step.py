"""One step of gradient descent, by one process or many, and its report."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy
import torch
from torch import Tensor, nn

from captioner.devices import autocast
from captioner.errors import UserError
from captioner.training.checkpoint import Position
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

Part = tuple[Any, float]
"""A part of a step's batch that fits into memory: the argument of the model's `loss`, and the share
of the batch's examples that it has; 0 for a masked dummy, so that every process takes part."""


class Batches(Protocol):
    """A training set in batches, which depend on the epoch only and can be divided."""

    def __len__(self) -> int:
        """The number of batches of every epoch."""

    def batches(
        self, epoch: int, first: int = 0, parts: Sequence[int] = (0,), part_count: int = 1
    ) -> Generator[list[Part], None, None]:
        """Some parts of each batch of an epoch, from number `first` on.

        parts: the numbers of the parts, of which a batch has `part_count`.
        """


def seed_of(*numbers: int) -> int:
    """A seed of 64 bits made of several numbers."""
    return int(numpy.random.SeedSequence(numbers).generate_state(1, numpy.uint64)[0])


class _Loss(nn.Module):
    """The model's loss as the forward function of a module, which an engine can wrap."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model = model
        self.precision: torch.dtype = getattr(torch, precision)

    def forward(self, batch: Any, device: torch.device) -> dict[str, Tensor]:
        with autocast(device, self.precision):
            report: dict[str, Tensor] = self.model.loss(batch)  # type: ignore[operator]
        return report


class Stepper:
    """Makes steps, counts them in a position, and sums their reports on the device.

    The gradient of a step is that of the mean loss over its examples, however many parts and
    processes they are divided among. On a GPU, and with several processes, a step waits for no
    result: `check` raises its error later, and must be called before anything is saved. From the
    failed step on, steps are left out, or made with gradients of zero, so that the weights stay
    finite. One process on a CPU raises the error before it changes the weights.

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
        position: Position,
    ) -> None:
        """position: where the run is, with sums and scale."""
        self.optimizer, self.config, self.engine = optimizer, config, engine
        self.position = position
        self._wrapped = engine.wrap(_Loss(model, config.precision))
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        device = self._device = self._parameters[0].device
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
        if position.scaling:
            self._scaler.load_state_dict(position.scaling)
        self._is_synchronous = device.type == "cpu" and engine.world_size == 1
        # Those of a checkpoint are sums over all processes.
        totals = position.totals if engine.is_main else dict.fromkeys(position.totals, 0.0)
        self._sums = {name: self._number(total) for name, total in totals.items()}
        # The first failed step, its loss and gradient norm; step -1 for none.
        self._failure = self._number([-1.0, 0.0, 0.0])

    def _number(self, value: Any) -> Tensor:
        return torch.tensor(value, dtype=self._dtype, device=self._device)

    def make(self, parts: Sequence[Part]) -> None:
        """Make a step, given this process's parts of the batch.

        One process may raise an error while others wait for it; they end when it leaves its engine.
        """
        try:
            self._make(parts)
        except (RuntimeError, UserError) as error:
            if _is_memory_error(error):
                raise self.memory_error() from None
            if self.config.compile and type(error).__module__.startswith("torch._"):
                reason = " ".join(str(error).splitlines()[:2]).strip()
                raise UserError(f"training.compile: torch cannot compile here: {reason}") from None
            if not self._is_nan_error(error):
                raise
            lost = self._lost(f"the model's output {_NOT_FINITE}", self.position.step)
            raise (self._noted_failure() or lost) from None
        self.position.step += 1
        self.position.step_in_epoch += 1

    def _make(self, parts: Sequence[Part]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        processes = self.engine.world_size
        loss: Tensor | None = None
        for number, (batch, share) in enumerate(parts, 1):
            is_last = processes == 1 or number == len(parts)
            with nullcontext() if is_last else self._wrapped.no_sync():  # type: ignore[operator]
                report = self._wrapped(batch.to(self._device), self._device)
                # Gradients are averaged over processes; the sum is needed.
                part_loss = report["loss"] * (share * processes)
                self._scaler.scale(part_loss).backward()
            self._add(report, share)
            if share > 0:
                loss = part_loss.detach() if loss is None else loss + part_loss.detach()
        self._scaler.unscale_(self.optimizer)
        has_overflowed = self._has_overflowed() if self._scaler.is_enabled() else None
        norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm or math.inf)
        if has_overflowed is not None:
            norm = norm.masked_fill(has_overflowed, 0.0)
        self._note_failure(norm if loss is None else loss / processes, norm)
        if self._is_synchronous:
            if failure := self._noted_failure():
                raise failure
        else:
            has_failed = self._failure[0] >= 0
            if self.optimizer.defaults.get("fused") and not self._scaler.is_enabled():
                # The fused kernel leaves the step out, with no kernel a parameter more.
                self.optimizer.found_inf = has_failed.float()  # type: ignore[attr-defined]
            else:
                for parameter in self._parameters:
                    if parameter.grad is not None:
                        parameter.grad.masked_fill_(has_failed, 0.0)
        self._scaler.step(self.optimizer)
        self._scaler.update()
        # All processes have the same norm, and their sums are added up.
        self._add({NORM: norm}, 1 / processes)

    def check(self) -> None:
        """Stop all processes if a loss, gradient or weight is not finite.

        Also if a weight exceeds `LARGEST_WEIGHT`.
        """
        failure = self._noted_failure()
        if failure is None and not self._has_sound_weights():
            failure = self._lost(f"a weight {_NOT_FINITE}", self.position.step - 1)
        self.engine.share_failure(failure)

    def memory_error(self) -> UserError:
        """The error when there is not enough memory for the next step."""
        return UserError(
            f"there is not enough memory on {self._device} for step {self.position.step + 1}, in "
            f"epoch {self.position.epoch + 1}: lower training.batch_size (data.batch_tokens of "
            "translation), or cut the steps into parts by training.accumulate"
        )

    def save_to_position(self) -> None:
        """Write the sums and the scale to the position, for a checkpoint."""
        self.position.totals = self.sums()
        self.position.scaling = self._scaler.state_dict()  # Empty but for float16.

    def sums(self) -> dict[str, float]:
        """The sums of the steps' reports over all processes, each step's a mean."""
        if not self._sums:
            return {}
        values = self.engine.sum(torch.stack(list(self._sums.values())))
        return dict(zip(self._sums, values.tolist(), strict=True))

    def end_epoch(self) -> None:
        """Count an epoch, and begin the sums anew."""
        self.position.epoch += 1
        self.position.step_in_epoch = 0
        self._sums = {}

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

    def _note_failure(self, loss: Tensor, norm: Tensor) -> None:
        """Note this step if it is the first that failed, without waiting for its result."""
        number = torch.full_like(norm, self.position.step)
        values = torch.stack([number, loss.to(norm.dtype), norm])
        is_first = ~values.isfinite().all() & (self._failure[0] < 0)
        self._failure = torch.where(is_first, values.to(self._dtype), self._failure)

    def _noted_failure(self) -> UserError | None:
        number, loss, norm = self._failure.tolist()
        if number < 0:
            return None
        return self._lost(f"the loss is {loss} and the norm of its gradient {norm}", number)

    def _has_sound_weights(self) -> bool:
        with torch.no_grad():
            largest = nn.utils.get_total_norm(self._parameters, math.inf)
        return float(largest) <= LARGEST_WEIGHT  # False for NaN.

    def _is_nan_error(self, error: Exception) -> bool:
        """Whether a step raised this error because of NaN or infinity."""
        if _NAN_ERROR in str(error):
            return True
        return not isinstance(error, UserError) and not self._has_sound_weights()

    def _lost(self, reason: str, step: float) -> UserError:
        return UserError(
            f"{reason} at step {round(step) + 1}, in epoch {self.position.epoch + 1}: lower "
            "learning_rate or clip_norm"
        )


def _is_memory_error(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MEMORY_ERRORS)
