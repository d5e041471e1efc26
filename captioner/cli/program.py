"""Runs a program: one-sentence errors, exit codes, signals, standard streams."""

import argparse
import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from captioner.errors import CONTROLS, INSTALL, UserError, on_a_line
from captioner.memory_limits import is_memory_error, memory_sentence

TRAINING = ("torch", "torchvision", "safetensors", "yaml", "pycocotools", "onnx", "onnxscript")
"""Packages of the extra `train`, which captioning and translating do without."""


def script_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help keeps the lines of a docstring."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=raw)


def run_program(main: Callable[[], int | None], name: str = "captioner") -> int:
    """Run `main`; returns the exit code. Standard output is UTF-8 unless it is a terminal.

    The exit code is the result of `main`, or 0, or one of these. 2: `UserError`, printed after the
    program's `name`, too little memory, a path that cannot be used, or standard output that cannot
    be written, which does not stop `main`. 130: Ctrl-C or SIGTERM, both raised as
    `KeyboardInterrupt`, also if a library turns that into another error, as safetensors does; a
    second SIGTERM kills the process. 141: a broken pipe.
    """
    is_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, interrupt)}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # `nohup` may ignore it.
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    with _usable_streams() as problems:
        try:
            code = main() or 0
            sys.stdout.flush()
        except KeyboardInterrupt as error:  # Training says how to resume.
            report(str(error) or "interrupted", name)
            code = 128 + signal.SIGINT
        except SystemExit as stop:  # argparse raises it, after help or a mistake.
            sys.stdout.flush()
            if not problems:
                raise
            code = int(stop.code or 0)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and error in problems:
                return 128 + 13  # The code of a program that SIGPIPE kills.
            sentence = "interrupted" if is_interrupted else _sentence(error)
            if not sentence:
                raise
            report(sentence, name)
            code = 128 + signal.SIGINT if is_interrupted else 2
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if problems:
            report(f"cannot write standard output: {problems[0].strerror}", name)
            code = code or 2
        return code


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
    return "a path has a NUL byte" if "embedded null" in str(error) else ""


class _Stream(io.TextIOWrapper):
    """Standard output or error; where it cannot be written, the rest is dropped.

    Only a broken pipe of standard output ends the run. On a terminal, standard output has its
    control characters escaped; standard error has progress bars, and `report` escapes it.

    problems: receives the errors of standard output; None for standard error.
    """

    def __init__(self, stream: io.TextIOWrapper, problems: list[OSError] | None) -> None:
        is_file = problems is not None and not stream.isatty()
        self._is_escaped = problems is not None and stream.isatty()
        self._problems = problems
        super().__init__(
            stream.buffer,
            encoding="utf-8" if is_file else stream.encoding,
            errors="backslashreplace",  # File names may be invalid in the encoding.
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def write(self, text: str) -> int:
        shown = CONTROLS.sub(lambda match: on_a_line(match[0]), text) if self._is_escaped else text
        with self._noting():
            super().write(shown)
        return len(text)

    def flush(self) -> None:
        with self._noting():
            super().flush()

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Note an error of writing, and send what is buffered, and all that follows, nowhere."""
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self._problems is not None:
                self._problems.append(error)
                if isinstance(error, BrokenPipeError):
                    raise


@contextlib.contextmanager
def _usable_streams() -> Iterator[list[OSError]]:
    """Replace closed standard streams, wrap output and error; yields the errors of output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Empty, and not to be written. Otherwise a file that is opened would get its number.
            descriptor = os.open(os.devnull, os.O_RDONLY)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))
    problems: list[OSError] = []
    wrapped: list[_Stream] = []
    before = sys.stdout, sys.stderr
    for name, noted in (("stdout", problems), ("stderr", None)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # Python's, not that of a test.
            wrapped.append(_Stream(stream, noted))
            setattr(sys, name, wrapped[-1])
    try:
        yield problems
    finally:
        sys.stdout, sys.stderr = before
        for stream in wrapped:
            with contextlib.suppress(BrokenPipeError):
                stream.detach()


def report(sentence: str, name: str = "captioner") -> None:
    """Print one sentence on standard error, after the program's name, in one piece."""
    sys.stderr.write(f"{name}: {on_a_line(sentence)}\n")
    sys.stderr.flush()
