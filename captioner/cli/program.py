"""Runs a program: one-sentence errors, exit codes, signals, output streams."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from captioner.errors import UserError

_UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of standard output: of a reader that left, and of a full or broken disk."""


def script_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help keeps the lines of a docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=raw)


def run_program(main: Callable[[], int | None], name: str = "captioner") -> int:
    """Run `main`; returns the exit code. Standard output is UTF-8 unless it is a terminal.

    The result of `main`, or 0. 2: `UserError`, printed after the program's `name`, or standard
    output cannot be written. 130: Ctrl-C or SIGTERM, both raised as `KeyboardInterrupt`; a second
    SIGTERM kills the process. 141: broken pipe.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # File names may be invalid in its encoding.
            encoding = "utf-8" if stream is sys.stdout and not stream.isatty() else None
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        code = main() or 0
        sys.stdout.flush()
        return code
    except UserError as error:
        report(str(error), name)
        return 2
    except KeyboardInterrupt as error:  # Of training, it says how to resume.
        report(str(error) or "interrupted", name)
        return 128 + signal.SIGINT
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:  # Of another file.
            raise
        # Python flushes what is left at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return 128 + 13  # As of a program that SIGPIPE ends.
        report(f"cannot write standard output: {error.strerror}", name)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)


def report(sentence: str, name: str = "captioner") -> None:
    """Print one sentence on standard error, after the program's name, in one piece."""
    sys.stderr.write(f"{name}: {on_a_line(sentence)}\n")
    sys.stderr.flush()


def on_a_line(text: str) -> str:
    """The text with what cannot be printed, which file names may hold, as escape sequences."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
