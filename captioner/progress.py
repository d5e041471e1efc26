"""Progress of long work: a moving line on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """Shows how far a piece of work is, its rate and the time left.

    On a terminal one line is redrawn at most ten times a second; elsewhere a plain line is
    printed at most every `interval` seconds and at the end. `total` and `start` count items;
    what was done before (`start`) does not count in the rate.
    """

    def __init__(
        self,
        what: str,
        total: int,
        unit: str = "items",
        start: int = 0,
        interval: float = 10.0,
        stream: TextIO | None = None,
    ) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.start = self.done = start
        self.stream = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self.interval = 0.1 if self.live else interval
        self.began = self.shown = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count `count` more items as done; `note` is shown behind the figures."""
        self.done += count
        now = time.monotonic()
        if now - self.shown >= self.interval:
            self.shown = now
            self._show(note)

    def close(self, note: str = "") -> None:
        """Show the last state and end the line."""
        self._show(note)
        if self.live:
            self.stream.write("\n")
            self.stream.flush()

    def line(self, note: str = "") -> str:
        """The text shown: `what: done/total unit, rate, time left`."""
        seconds = time.monotonic() - self.began
        rate = (self.done - self.start) / seconds if seconds > 0 else 0.0
        parts = [f"{self.what}: {self.done:,}/{self.total:,} {self.unit}"]
        if rate > 0:
            parts.append(f"{rate:,.1f} {self.unit}/s")
            if self.done < self.total:
                parts.append(f"{duration((self.total - self.done) / rate)} left")
            else:
                parts.append(f"took {duration(seconds)}")
        return ", ".join([*parts, note] if note else parts)

    def _show(self, note: str) -> None:
        line = self.line(note)
        self.stream.write(f"\r\x1b[2K{line}" if self.live else f"{line}\n")
        self.stream.flush()


def duration(seconds: float) -> str:
    """Seconds in words a person reads at a glance: 42s, 3m05s, 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
