"""Progress of an epoch."""

from __future__ import annotations

import time

from captioner.progress import progress_bar

LOSS_SECONDS = 1.0
"""Least time between two moments at which the shown loss is fetched from the device."""


class StepProgress:
    """A progress bar of the steps of an epoch, with examples a second and the mean loss."""

    def __init__(self, what: str, steps: int, done: int, unit: str, shown: bool) -> None:
        """A bar of so many steps, of which some are done.

        unit: name of the examples, in the plural. shown: False for no output.
        """
        self._unit, self._examples = unit, 0
        self._began = self._fetched = time.monotonic()
        self._bar = progress_bar(what, steps, "steps", done, shown)

    @property
    def is_loss_due(self) -> bool:
        """Whether to fetch the loss and call `show_loss`; never if nothing is shown."""
        return not self._bar.disable and time.monotonic() - self._fetched >= LOSS_SECONDS

    def show_loss(self, loss: float) -> None:
        """Show this loss, and the rate of the examples, from now on."""
        self._fetched = time.monotonic()
        note = f"loss {loss:.3f}"
        seconds = self._fetched - self._began
        if seconds > 0 and self._examples:
            note = f"{self._examples / seconds:,.0f} {self._unit}/s, {note}"
        self._bar.set_postfix_str(note, refresh=False)

    def advance(self, examples: int) -> None:
        """Count one more step, of so many examples."""
        self._examples += examples
        self._bar.update()

    def close(self) -> None:
        """End the bar."""
        self._bar.close()
