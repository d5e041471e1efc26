"""Ctrl-C and SIGTERM, turned into a question a loop can ask between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(Exception):  # noqa: N818 - a wish fulfilled, not an error
    """A run was asked to stop, and did, with its work saved. The message says how to go on."""


class Interruption:
    """While entered, SIGINT and SIGTERM set `asked` instead of ending the process.

    A second signal ends it at once, if `insist`. Outside the main thread signals stay as they are.
    """

    def __init__(self, insist: bool = True) -> None:
        """Of one process; one of several, of which torchrun tells each again, does not insist."""
        self.asked = False
        self._insist = insist
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self._insist:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
