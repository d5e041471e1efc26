"""Runs a program: one-sentence errors, exit codes, signals, standard streams."""

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TextIO

from captioner.errors import CONTROLS, INSTALL, UserError, on_a_line
from captioner.memory_limits import is_memory_error, memory_sentence

TRAINING = ("torch", "torchvision", "safetensors", "yaml", "pycocotools", "onnx", "onnxscript")
"""Packages of the extra `train`, which captioning and translating do without."""

_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of standard output, which has no name; those of files are `UserError`s."""


def script_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help keeps the lines of a docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=raw)


def run_program(main: Callable[[], int | None], name: str = "captioner") -> int:
    """Run `main`; returns the exit code. Standard output is UTF-8 unless it is a terminal.

    The exit code is the result of `main`, or 0, or one of these. 2: `UserError`, printed after the
    program's `name`, too little memory, a path that cannot be used, or standard output that cannot
    be written. 130: Ctrl-C or SIGTERM, both raised as `KeyboardInterrupt`, also if a library turns
    that into another error, as safetensors does; a second SIGTERM kills the process. 141: a broken
    pipe.

    Python prints and ignores what a finaliser, a weakref callback or a hook of `fork` raises. A
    `KeyboardInterrupt` of theirs is raised again, by a timer, until it falls outside; not on
    Windows, which has no such timer.
    """
    is_interrupted = False
    report_ignored = sys.unraisablehook

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        _set_timer(0)  # The hook sets it anew for one that is lost.
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    def raise_again(ignored: "sys.UnraisableHookArgs") -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            _set_timer(0.01)  # By when this has returned.
        elif not is_interrupted:  # Else it is of an object that was not made whole.
            report_ignored(ignored)

    _set_streams()
    sys.unraisablehook = raise_again
    numbers = {signal.SIGTERM, getattr(signal, "SIGALRM", signal.SIGTERM)}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # As `nohup` may have it.
        numbers.add(signal.SIGINT)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        try:
            return main() or 0
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt as error:  # Training says how to resume.
        report(str(error) or "interrupted", name)
        return 128 + signal.SIGINT
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
            _drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return 128 + 13  # The code of a program that SIGPIPE kills.
        sentence = "interrupted" if is_interrupted else _sentence(error)
        if not sentence:
            raise
        report(sentence, name)
        return 128 + signal.SIGINT if is_interrupted else 2
    finally:
        _set_timer(0)
        sys.unraisablehook = report_ignored
        for number, handler in before.items():
            signal.signal(number, handler)
        eval("0")  # Else Python, after an interrupt in `exec`, ends by SIGINT instead of the code.


def _set_timer(seconds: float) -> None:
    """Have SIGALRM come after so many seconds, or not at 0; Windows has no such timer."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _sentence(error: Exception) -> str:
    """The sentence for an error that a person can mend; "" for another error."""
    if isinstance(error, UserError):
        return str(error)
    if is_memory_error(error):
        return memory_sentence(error)
    if isinstance(error, ModuleNotFoundError) and error.name in TRAINING:
        return f"this needs {error.name}: {INSTALL}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return f"cannot write standard output: {error.strerror}"
    return "a path has a NUL byte" if "embedded null" in str(error) else ""


class _Terminal(io.TextIOWrapper):
    """Standard output on a terminal, with what would steer that as escape sequences."""

    def write(self, text: str) -> int:
        super().write(CONTROLS.sub(lambda match: on_a_line(match[0]), text))
        return len(text)


def _set_streams() -> None:
    """Open closed standard streams on the null device; set the encoding of standard output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # Otherwise a file that is opened would get its number.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))
    stdout, escaped = sys.stdout, "backslashreplace"  # File names may be invalid in the encoding.
    if not isinstance(stdout, io.TextIOWrapper):  # A notebook's.
        return
    if not stdout.isatty():
        stdout.reconfigure(encoding="utf-8", errors=escaped)
    elif stdout is sys.__stdout__:
        sys.stdout = _Terminal(stdout.buffer, stdout.encoding, escaped, line_buffering=True)


def _drop(stream: TextIO) -> None:
    """Send what a standard stream could not write, which Python flushes at its end, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def report(sentence: str, name: str = "captioner") -> None:
    """Print one sentence on standard error, after the program's name, in one piece."""
    try:
        sys.stderr.write(f"{name}: {on_a_line(sentence)}\n")
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)
