"""Runs a program: one-sentence errors, exit codes, signals, output streams."""

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
"""Errors of writing to a full or broken disk."""


def run_program(main: Callable[[], int | None], name: str = "captioner") -> int:
    """Run `main`; returns the exit code.

    0, or the result of `main`: success. 2: `UserError`, printed after the program's `name` on
    standard error, or standard output cannot be written. 130: Ctrl-C or SIGTERM, both raised as
    `KeyboardInterrupt`. 141: broken pipe.

    Standard output is UTF-8 unless it is a terminal.
    """
    for stream in (sys.stdout, sys.stderr):
        # File names may be invalid in the stream's encoding.
        if hasattr(stream, "reconfigure"):
            encoding = "utf-8" if stream is sys.stdout and not stream.isatty() else None
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        with _termination_as_interrupt():
            code = main() or 0
            sys.stdout.flush()
        return code
    except UserError as error:
        report(str(error), name)
        return 2
    except KeyboardInterrupt as error:  # Of training, it says how to resume.
        report(str(error) or "interrupted", name)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        _discard_output()
        return 128 + 13
    except OSError as error:
        # Without a file name: other files are named in a `UserError`.
        if error.errno not in _FULL or error.filename is not None:
            raise
        report(f"cannot write standard output: {error.strerror}", name)
        _discard_output()
        return 2


def report(sentence: str, name: str = "captioner") -> None:
    """Print one sentence on standard error, after the program's name, in one piece."""
    sys.stderr.write(f"{name}: {on_a_line(sentence)}\n")
    sys.stderr.flush()


def on_a_line(text: str) -> str:
    """The text with what cannot be printed, which file names may hold, as escape sequences."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _discard_output() -> None:
    """Redirect standard output's buffer, which Python flushes at exit, to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on the first SIGTERM; a second kills the process."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
