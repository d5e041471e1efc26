"""Turns Ctrl-C and SIGTERM into a flag that the loop checks between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A run stopped on request, with its checkpoint saved. The message says how to resume."""


class Interruption:
    """Within it, SIGINT and SIGTERM set `is_requested`; no effect outside the main thread."""

    def __init__(self, exit_on_second: bool = True) -> None:
        """exit_on_second: whether a second signal ends the process; torchrun repeats signals."""
        self.is_requested = False
        self._exit_on_second = exit_on_second
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.is_requested = True
        if self._exit_on_second:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
