"""One step of gradient descent, by one process or by many, and what it reports."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.training.batches import Step
from captioner.training.config import TrainingConfig
from captioner.training.engine import Engine

NORM = "gradient_norm"

LARGEST_WEIGHT = 1e18
"""What is beyond it is lost: its square is hardly a float32 any more."""

_NO_NUMBER = ("probability tensor contains", "is not a number")
"""In what a forward pass raises, in torch's words or ours, where it meets what is no number."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
"""The same where there is no memory, on a device for which torch has no error of its own."""


class _Loss(nn.Module):
    """The model's loss as the forward function of a module, which is what an engine wraps."""

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self.in_bfloat16 = config.precision == "bfloat16"

    def forward(self, batch: Any, device: torch.device) -> dict[str, Tensor]:
        """What the model reports of a batch on its device."""
        precision: AbstractContextManager[Any] = (
            torch.autocast(device.type, torch.bfloat16) if self.in_bfloat16 else nullcontext()
        )
        with precision:
            report: dict[str, Tensor] = self.model.loss(batch)  # type: ignore[operator]
        return report


class Stepper:
    """Makes steps, and keeps the sums of what they report where it is computed.

    The gradient of a step is that of the mean loss over its examples, however many parts and
    processes they are divided among. On a GPU, and with several processes, a step waits for
    nothing: what went wrong in it is found when `check` is called, which is to be done before
    anything is kept. Until then the gradients of that step and of those behind it are taken as
    zero, so that the weights stay numbers. Alone on a CPU it is found at once, and the weights are
    left as they were.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        engine: Engine,
        checkpoint: Path,
    ) -> None:
        """Of a model and an optimiser of its parameters; `checkpoint` is named where one fails."""
        self.optimizer, self.config, self.engine = optimizer, config, engine
        self._checkpoint = checkpoint
        self._wrapped = engine.wrap(_Loss(model, config))
        self._parameters = [p for group in optimizer.param_groups for p in group["params"]]
        device = self._parameters[0].device
        self._device = device
        self._number = torch.float32 if device.type == "mps" else torch.float64
        self._at_once = device.type == "cpu" and engine.size == 1
        self._last = -1
        self._numbers: dict[str, float] = {}
        self._sums: dict[tuple[str, ...], Tensor] = {}
        # The first step that failed, its loss and the norm of its gradient; no step so far.
        self._failure = torch.tensor([-1.0, 0.0, 0.0], dtype=self._number, device=device)

    def make(self, step: Step, number: int, epoch: int) -> None:
        """Make a step, number `number` of the run, in an epoch, both counted from 0.

        Raises `UserError` as `check` does, where it is found at once, and where there is not enough
        memory. One process alone may do so, while others wait for it: see `Engine.abort_together`.
        """
        try:
            self._make(step, number, epoch)
        except (RuntimeError, UserError) as error:
            if _is_of_memory(error):
                raise self.no_memory(number, epoch) from None
            if not self._is_no_number(error):
                raise
            found = self._noted(epoch) or self._lost("the model's output", number, epoch)
            raise found from None

    def _make(self, step: Step, number: int, epoch: int) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss: Tensor | None = None
        for place, part in enumerate(step.parts):
            share = part.examples / step.examples
            is_last = place + 1 == len(step.parts)
            with nullcontext() if is_last else self.engine.no_sync(self._wrapped):
                report = self._wrapped(part.batch.to(self._device), self._device)
                # The engine takes the mean over processes, of which the sum is wanted.
                weight = share * self.engine.size
                own = report["loss"] if weight == 1 else report["loss"] * weight
                own.backward()
            self._add(report, share)
            if part.examples > 0:
                loss = own.detach() if loss is None else loss + own.detach()
        clip = self.config.clip_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self._parameters, clip)
        if self._at_once:
            assert loss is not None
            if not (math.isfinite(float(loss)) and math.isfinite(float(norm))):
                raise self._failed(number, epoch, float(loss), float(norm))
        else:
            self._watch(number, norm if loss is None else loss / self.engine.size, norm)
            failed = self._failure[0] >= 0
            for parameter in self._parameters:
                if parameter.grad is not None:
                    parameter.grad.masked_fill_(failed, 0.0)
        self.optimizer.step()
        self._last = number
        # The norm is the same to all processes, whose sum is taken in the end.
        self._add({NORM: norm}, 1 / self.engine.size)

    def check(self, epoch: int) -> None:
        """End all processes, with a `UserError`, if a loss or gradient was no number in any.

        Or if a weight is none, or so large that it is lost. epoch: that of the last step.
        """
        failure = self._noted(epoch)
        if failure is None and not self._weights_are_sound():
            failure = self._lost("a weight", self._last, epoch)
        self.engine.share_failure(failure)

    def no_memory(self, number: int, epoch: int) -> UserError:
        """What to say where there is not enough memory for a step."""
        return UserError(
            f"there is not enough memory on {self._device} for step {number + 1}, in epoch "
            f"{epoch + 1}: lower training.batch_size (data.batch_tokens of translation), or cut "
            f"the steps into parts by training.accumulate{self._from_before()}"
        )

    def sums(self) -> dict[str, float]:
        """Over all processes, the sums of what the steps have reported, each step's a mean."""
        found = dict(self._numbers)
        for names, own in self._sums.items():
            for name, value in zip(names, self.engine.sum(own).tolist(), strict=True):
                found[name] = found.get(name, 0.0) + value
        return found

    def start(self, sums: dict[str, float]) -> None:
        """Begin anew with these sums."""
        self._numbers, self._sums = {}, {}
        if self._at_once:
            self._numbers |= sums
        elif sums:
            values = torch.tensor(list(sums.values()), dtype=self._number, device=self._device)
            # What all processes have summed up is counted once.
            self._sums[tuple(sums)] = values if self.engine.is_main else torch.zeros_like(values)

    def _add(self, report: dict[str, Tensor], share: float) -> None:
        if self._at_once:
            for name, value in report.items():
                number = float(value.detach()) * share if share > 0 else 0.0
                self._numbers[name] = self._numbers.get(name, 0.0) + number
            return
        values = torch.stack([value.detach().to(self._device) for value in report.values()])
        values = values.to(self._number)
        if share == 0:  # Of examples that are none, for which nothing need be a number.
            values = torch.zeros_like(values)
        names = tuple(report)
        if names not in self._sums:
            self._sums[names] = torch.zeros_like(values)
        self._sums[names].add_(values, alpha=share)

    def _watch(self, number: int, loss: Tensor, norm: Tensor) -> None:
        """Note this step as the first that failed, if so, without waiting for it."""
        found = torch.stack([torch.full_like(norm, number), loss.to(norm.dtype), norm])
        bad = ~found.isfinite().all() & (self._failure[0] < 0)
        self._failure = torch.where(bad, found.to(self._number), self._failure)

    def _noted(self, epoch: int) -> UserError | None:
        """The failure that `_watch` has noted, if any."""
        if self._at_once:
            return None
        number, loss, norm = self._failure.tolist()
        return self._failed(round(number), epoch, loss, norm) if number >= 0 else None

    def _weights_are_sound(self) -> bool:
        with torch.no_grad():
            largest = torch.stack(torch._foreach_norm(self._parameters, math.inf)).max()
        return float(largest) <= LARGEST_WEIGHT  # Not so if it is no number.

    def _is_no_number(self, error: Exception) -> bool:
        """Whether a step raised this because something in it was no number."""
        if any(words in str(error) for words in _NO_NUMBER):
            return True
        if isinstance(error, UserError):
            return False
        try:
            return not self._weights_are_sound()
        except RuntimeError:  # The device answers nothing any more.
            return False

    def _failed(self, number: int, epoch: int, loss: float, norm: float) -> UserError:
        return UserError(
            f"the loss is {loss} and the norm of its gradient {norm} at step {number + 1}, in "
            f"epoch {epoch + 1}: lower learning_rate or clip_norm{self._from_before()}"
        )

    def _lost(self, what: str, number: int, epoch: int) -> UserError:
        return UserError(
            f"{what} is not a number, or too large for one, at step {number + 1}, in epoch "
            f"{epoch + 1}: lower learning_rate or clip_norm{self._from_before()}"
        )

    def _from_before(self) -> str:
        return f"; {self._checkpoint} is from before it" if self._checkpoint.exists() else ""


def _is_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
