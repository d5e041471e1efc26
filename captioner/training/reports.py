"""Reports of steps: their sums, and the sentence for a step that failed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.memory_limits import is_memory_error
from captioner.training.checkpoint import Position
from captioner.training.distributed import Processes

NORM = "gradient_norm"
UNSEEN_STEPS = 50  # Steps of a GPU between two readings of their losses and gradients.
LARGEST_WEIGHT = 1e18  # Larger weights overflow float32 when squared.
_NAN_ERROR = "is not a number"  # In errors of a forward pass: NaN or infinity.
_NOT_FINITE = f"{_NAN_ERROR}, or too large for one,"


@dataclass(eq=False)
class StepReports:
    """Sums the reports of steps since the epoch began (`totals`), and finds failed steps.

    A gradient that is not finite is an error: on a CPU before it changes a weight, elsewhere within
    `UNSEEN_STEPS`, since a GPU runs ahead of what is read from it. Under a scaler (float16) it is
    one only below a scale of 1: the scaler leaves the step out.

    position: read, to say where a step failed. last_loss: of this process's last part.
    """

    parameters: Sequence[nn.Parameter]
    scaler: torch.amp.GradScaler
    processes: Processes
    position: Position
    last_loss: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.device = self.parameters[0].device
        self.most_unseen = 0 if self.device.type == "cpu" else UNSEEN_STEPS
        # A checkpoint has sums over all processes: process 0 takes them, the others begin at 0.
        totals = self.position.totals
        self.totals = dict(totals) if self.processes.is_main else dict.fromkeys(totals, 0.0)
        self._unseen: list[tuple[int, Mapping[str, Tensor], float]] = []  # Steps, reports, shares.

    def add(self, report: Mapping[str, Tensor], share: float) -> None:
        """Take the report of a part of the current step. share: of the batch's examples."""
        report = {name: value.detach() for name, value in report.items()}
        self._unseen.append((self.position.step, report, share))
        self.last_loss = report["loss"]

    def add_norm(self, norm: Tensor) -> None:
        """Take the norm of the current step's gradient, the same in all processes.

        Raises `UserError` in one process, and stops the others, if a gradient is not finite.
        """
        step = self.position.step
        self._unseen.append((step, {NORM: norm}, 1 / self.processes.world_size))
        is_due = step - self._unseen[0][0] >= self.most_unseen
        if is_due and (failure := self._see()):
            with self.processes.fail_together():
                raise failure

    def sums(self) -> dict[str, float]:
        """The sums of the steps' reports over all processes, each step's a mean.

        Stops all of them if a gradient or weight is not finite, or exceeds `LARGEST_WEIGHT`.
        """
        failure = self._see()
        with self.processes.fail_together():
            if failure is None and not self._has_sound_weights():
                failure = self._failure(f"a weight {_NOT_FINITE}", self.position.step - 1)
            if failure:
                raise failure
        values = torch.tensor(list(self.totals.values()), dtype=torch.float64)
        return dict(zip(self.totals, self.processes.sum(values).tolist(), strict=True))

    def explained(self, error: Exception) -> Exception:
        """The failure of an earlier step, a sentence about memory or NaN, or the error."""
        if failure := self._see():
            return failure
        is_ours = isinstance(error, UserError)
        step = self.position.step
        if not is_ours and is_memory_error(error):
            fault = f"there is not enough memory on {self.device} for {self._place(step)}"
            smaller = "lower training.batch_size (data.batch_tokens of translation)"
            return UserError(f"{fault}: {smaller}, or cut the steps by training.accumulate")
        if _NAN_ERROR in str(error) or not (is_ours or self._has_sound_weights()):
            return self._failure(f"the model's output {_NOT_FINITE}", step)
        return error

    def _see(self) -> UserError | None:
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

    def _has_sound_weights(self) -> bool:
        # False for NaN.
        return float(nn.utils.get_total_norm(self.parameters, math.inf)) <= LARGEST_WEIGHT

    def _failure(self, reason: str, step: int) -> UserError:
        return UserError(f"{reason} at {self._place(step)}: lower learning_rate or clip_norm")

    def _place(self, step: int) -> str:
        return f"step {step + 1}, in epoch {self.position.epoch + 1}"
