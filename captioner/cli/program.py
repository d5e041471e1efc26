"""What every program here does around its work: one sentence for an error, a clean end."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from captioner.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing fails with when there is no room for it, or the device is broken."""


def run_program(main: Callable[[], int | None], name: str = "captioner") -> int:
    """Do a program's work; returns the exit code.

    0, or what `main` returns: all went well. 2: something the person gave is wrong, which is said
    in one sentence behind the program's `name` on standard error. 130: stopped by Ctrl-C or
    SIGTERM, either of which `main` meets as `KeyboardInterrupt`. 141: nobody reads the output.

    Standard output is UTF-8 unless it is a terminal, which has its own encoding. One that is closed
    or cannot be written to, as on a full disk, is an error as those of exit code 2.
    """
    if sys.stderr is None:  # Nothing can be said, and it must not go to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print(f"{name}: standard output is closed: there is no place to write to", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        # File names need not be text that the terminal can show.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdout, "reconfigure") and not sys.stdout.isatty():
        # A file or pipe, whatever the locale's encoding.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with _termination_as_interrupt():
            code = main() or 0
            sys.stdout.flush()
        return code
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read the output has left; nothing more can be said to them.
        _discard_output()
        return 128 + 13
    except Exception as error:
        # Files that are written are named in a `UserError`.
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            print(f"{name}: cannot write standard output: {error.strerror}", file=sys.stderr)
            _discard_output()
            return 2
        # Imported here: it brings torch, which only those who train have loaded.
        from captioner.training import Interrupted

        if not isinstance(error, Interrupted):
            raise
        print(f"{name}: {error}", file=sys.stderr)
        return 128 + signal.SIGINT


def _discard_output() -> None:
    """Have what standard output still holds, which Python writes as it ends, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, with what is done kept; a second ends it at once.

    Outside the main thread, and where the signal is ignored or handled already, nothing changes.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
