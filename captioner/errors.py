"""The error a user can cause, and parts of messages."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, but for tabs and line ends."""


INSTALL = "pip install 'captioner[train]'"


class UserError(Exception):
    """Wrong input, in one sentence: what is wrong, where, and what to do; exit code 2.

    Whatever reads, writes or looks up what a user named may raise it; a docstring says so only
    where the reason surprises. A mistake of the calling program is a `ValueError`.
    """


class GraphError(UserError):
    """A model's graphs cannot be used; torch needs none."""


@contextmanager
def noted(note: Callable[[str], object]) -> Iterator[None]:
    """Note the sentence of a `UserError` in the block, which ends there, and go on."""
    try:
        yield
    except UserError as error:
        note(str(error))


@contextmanager
def refuse_missing(need: str, extra: str) -> Iterator[None]:
    """Raise `UserError` if an import in the block fails. need: "x needs y"; extra: has y."""
    try:
        yield
    except ImportError as error:
        if "failed to map segment" in str(error):  # Too little memory.
            raise
        raise UserError(f'{need}: pip install "captioner[{extra}]"') from None


@contextmanager
def refuse_errors(problem: str, advice: str = "") -> Iterator[None]:
    """Raise `UserError` for any error of a library: torch, timm and others raise many types."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        reason = re.split(r"\.?\s*\n|\. ", str(error))[0].rstrip(".") or type(error).__name__
        if type(error).__name__ == "UnpicklingError":  # Torch advises to run the file's code.
            reason = "it is damaged, or holds something besides tensors, which is never run"
        raise UserError(f"{problem} ({reason}){advice and f'; {advice}'}") from None


def near_names(name: object, known: Iterable[str], count: int = 3, least: float = 0.6) -> list[str]:
    """The known names most like `name`. least: the least likeness, 0 to 1."""
    return difflib.get_close_matches(str(name), list(known), count, least)


def did_you_mean(names: Sequence[str]) -> str:
    """The end of a message that suggests these names; "" if there are none."""
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 photo", "2,000 photos"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def reason_of(error: BaseException) -> str:
    """The message of a library's error on one line; its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def is_of_interrupt(error: BaseException | None) -> bool:
    """Whether an error came of Ctrl-C or SIGTERM, which a library turned into another."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def on_a_line(text: str) -> str:
    """The text with what cannot be printed, which file names may hold, as escape sequences."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
