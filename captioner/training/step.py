"""One step of gradient descent, by one process or many, and its report."""

import math
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from captioner.devices import autocast
from captioner.errors import UserError
from captioner.memory_limits import is_memory_error
from captioner.training.checkpoint import Position
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine

NORM = "gradient_norm"
UNSEEN_STEPS = 50  # Steps of a GPU between two readings of their losses and gradients.
LARGEST_WEIGHT = 1e18  # Larger weights overflow float32 when squared.
_NAN_ERROR = "is not a number"  # In errors of a forward pass: NaN or infinity.
_NOT_FINITE = f"{_NAN_ERROR}, or too large for one,"


class Batches(Protocol):
    """A training set in batches, which depend on the epoch only and can be divided.

    A part is the argument of the model's `loss`, and has `to(device)`. `share`: of the batch's
    examples, 0 for a fully masked dummy, so that every process takes part; 1 if it has none.
    """

    def __len__(self) -> int:
        """The number of batches of every epoch."""

    def batches(
        self, epoch: int, first: int = 0, parts: Sequence[int] = (0,), part_count: int = 1
    ) -> Generator[list[Any], None, None]:
        """Yield, for each batch of an epoch from number `first` on, the parts of these numbers."""


def seed_of(*numbers: int) -> int:
    """A seed of 64 bits made of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


class _Loss(nn.Module):
    """The model's loss as the forward function of a module, which an engine can wrap."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model = model
        self.precision: torch.dtype = getattr(torch, precision)

    def forward(self, batch: Any, device: torch.device) -> dict[str, Tensor]:
        with autocast(device, self.precision):
            return self.model.loss(batch)  # type: ignore[no-any-return, operator]


class TrainingStepper:
    """Makes steps, and sums their reports since the epoch began (`totals`).

    The gradient of a step is that of the mean loss over its examples, however many parts and
    processes they are divided among. One that is not finite is an error: on a CPU before it changes
    a weight, elsewhere within `UNSEEN_STEPS`, since a GPU runs ahead of what is read from it.

    In float16 gradients are scaled (Micikevicius et al. 2018, *Mixed Precision Training*). A step
    whose gradient overflows is left out and halves the scale; below a scale of 1 it is a failure.

    position: read, to say where a step failed. last_loss: of this process's last part.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        engine: Engine,
        position: Position,
    ) -> None:
        self.optimizer, self.config = optimizer, config
        self.engine, self.position = engine, position
        self._wrapped = engine.wrap(_Loss(model, config.precision))
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._device = self._parameters[0].device
        self.most_unseen = 0 if self._device.type == "cpu" else UNSEEN_STEPS
        is_scaled = config.precision == "float16"
        self.scaler = torch.amp.GradScaler(self._device.type, enabled=is_scaled)
        if position.scaling:
            self.scaler.load_state_dict(position.scaling)
        # A checkpoint has sums over all processes: process 0 takes them, the others begin at 0.
        totals = position.totals
        self.totals = dict(totals) if engine.is_main else dict.fromkeys(totals, 0.0)
        self._unseen: list[tuple[int, dict[str, Tensor], float]] = []  # Steps, reports, shares.

    def make(self, parts: Sequence[Any]) -> None:
        """Make a step, given this process's parts of the batch.

        After an error, processes that wait for this one end when it leaves its engine.
        """
        try:
            self.optimizer.zero_grad(set_to_none=True)
            processes = self.engine.world_size
            scaler = self.scaler
            step = self.position.step
            for number, part in enumerate(parts, 1):
                is_last = processes == 1 or number == len(parts)
                share = getattr(part, "share", 1.0)
                with nullcontext() if is_last else self._wrapped.no_sync():  # type: ignore[operator]
                    report = self._wrapped(part.to(self._device), self._device)
                    # Gradients are averaged over processes; the sum is needed.
                    scaler.scale(report["loss"] * (share * processes)).backward()
                report = {name: value.detach() for name, value in report.items()}
                self._unseen.append((step, report, share))
                self.last_loss = report["loss"]
            scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm or math.inf)
            self._unseen.append((step, {NORM: norm}, 1 / processes))  # All have the same norm.
            is_due = step - self._unseen[0][0] >= self.most_unseen
            if is_due and (failure := self._see_reports()):
                with self.engine.fail_together():
                    raise failure
            scaler.step(self.optimizer)
            scaler.update()
        except (RuntimeError, UserError) as error:
            raise (self._see_reports() or self.explained(error)) from None

    def _see_reports(self) -> UserError | None:
        """Add the unseen reports to the sums; returns the first gradient's failure."""
        unseen, self._unseen = self._unseen, []
        failure = None
        for step, report, share in unseen:
            for name, value in report.items():
                mean = float(value) * share if share > 0 else 0.0  # A dummy example may give NaN.
                if name == NORM and not math.isfinite(mean):
                    if not self.scaler.is_enabled() or self.scaler.get_scale() < 1:
                        reason = f"the norm of the gradient is {float(value)}"
                        failure = failure or self._failure(reason, step)
                    mean = 0.0  # The scaler leaves the step out.
                self.totals[name] = self.totals.get(name, 0.0) + mean
        return failure

    def sums(self) -> dict[str, float]:
        """The sums of the steps' reports over all processes, each step's a mean.

        Stops all of them if a gradient or weight is not finite, or exceeds `LARGEST_WEIGHT`.
        """
        failure = self._see_reports()
        with self.engine.fail_together():
            if failure is None and not self._has_sound_weights():
                failure = self._failure(f"a weight {_NOT_FINITE}", self.position.step - 1)
            if failure:
                raise failure
        values = torch.tensor(list(self.totals.values()), dtype=torch.float64)
        return dict(zip(self.totals, self.engine.sum(values).tolist(), strict=True))

    def _has_sound_weights(self) -> bool:
        # False for NaN.
        return float(nn.utils.get_total_norm(self._parameters, math.inf)) <= LARGEST_WEIGHT

    def explained(self, error: Exception) -> Exception:
        """The sentence for an error of memory or of NaN; else the error."""
        is_ours = isinstance(error, UserError)
        step = self.position.step
        if not is_ours and is_memory_error(error):
            return UserError(
                f"there is not enough memory on {self._device} for {self._place(step)}: lower "
                "training.batch_size (data.batch_tokens of translation), or cut the steps into "
                "parts by training.accumulate"
            )
        if _NAN_ERROR in str(error) or not (is_ours or self._has_sound_weights()):
            return self._failure(f"the model's output {_NOT_FINITE}", step)
        return error

    def _failure(self, reason: str, step: int) -> UserError:
        return UserError(f"{reason} at {self._place(step)}: lower learning_rate or clip_norm")

    def _place(self, step: int) -> str:
        return f"step {step + 1}, in epoch {self.position.epoch + 1}"
