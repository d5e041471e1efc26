"""How far an epoch is, as a person sees it."""

from __future__ import annotations

import time

from captioner.progress import Progress

LOOK_SECONDS = 1.0
"""How often what the steps report is fetched from where it is computed, to be shown."""


class StepProgress:
    """The progress of an epoch: its steps, how many examples a second, and the mean loss."""

    def __init__(self, what: str, steps: int, done: int, unit: str, shown: bool) -> None:
        """Of so many steps, of which some are done before.

        unit: what examples are called; their rate is shown where it is given. shown: whether
        anything is; one of several processes shows it.
        """
        self._unit = unit
        self._began = self._looked = time.monotonic()
        self._examples = 0
        self._note = ""
        self._progress = Progress(what, steps, "steps", start=done) if shown else None

    @property
    def due(self) -> bool:
        """Whether it is time to look at what the steps report; never where nothing is shown."""
        return self._progress is not None and time.monotonic() - self._looked >= LOOK_SECONDS

    def note(self, loss: float) -> None:
        """Show this loss, and the rate of the examples, from now on."""
        self._looked = time.monotonic()
        self._note = f"loss {loss:.3f}"
        seconds = self._looked - self._began
        if self._unit and seconds > 0 and self._examples:
            self._note = f"{self._examples / seconds:,.0f} {self._unit}/s, {self._note}"

    def advance(self, examples: int) -> None:
        """One more step, of so many examples."""
        self._examples += examples
        if self._progress is not None:
            self._progress.advance(note=self._note)

    def close(self) -> None:
        """End the line."""
        if self._progress is not None:
            self._progress.close(self._note)
