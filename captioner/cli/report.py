"""Reports bad items of a batch on standard error, and scores."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of the characters that turn the direction of writing."""


def report(sentence: str, name: str = "captioner") -> None:
    """Print one sentence on standard error, after the program's name, in one piece."""
    sys.stderr.write(f"{name}: {on_a_line(sentence)}\n")
    sys.stderr.flush()


def on_a_line(text: str) -> str:
    """The text with control characters, which file names may hold, as escape sequences.

    Also those that break lines or turn the direction of writing.
    """
    return "".join(ascii(letter)[1:-1] if _is_control(letter) else letter for letter in text)


def _is_control(letter: str) -> bool:
    breaks = unicodedata.category(letter) in ("Cc", "Zl", "Zp")
    return breaks or unicodedata.bidirectional(letter) in _TURNS


def report_too_long(shown: str, line: int, lost: int, reads: int) -> None:
    """Report that the last `lost` tokens of a line are not read.

    shown: the file's name. reads: tokens that the model reads.
    """
    report(
        f"{shown}, line {line}, is too long: its last {lost:,} tokens are not read, since the "
        f"model reads {reads:,}"
    )


def report_cut(shown: str, line: int, longest: int, rank: int = 1) -> None:
    """Report that a line's translation number `rank` was cut at the maximum length, in tokens."""
    which = "translation" if rank == 1 else f"translation {rank}"
    report(f"{shown}: {which} of line {line} was cut at {longest:,} tokens")


def report_left_out(left_out: Mapping[str, str] | None, total: int) -> None:
    """Report why each photo was left out, by name, and how many of `total` were."""
    if left_out:
        for reason in left_out.values():
            report(reason)
        report(f"{len(left_out):,} of {total:,} photos could not be read and do not count")


def report_scores(
    scores: Any, json: str | None, *files: tuple[str | None, Callable[[str], object]]
) -> None:
    """Print the table, write the JSON and the files that are wanted.

    scores: have `table()` and `as_dict()`. files: paths, each with what writes to it. One that
        fails does not stop the rest.
    """
    from captioner.files import try_all, write_json

    print(scores.table(), flush=True)
    writers = [(json, lambda path: write_json(path, scores.as_dict())), *files]
    try_all([partial(write, path) for path, write in writers if path])
