"""What commands say on standard error about items of a batch that were bad."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def report(sentence: str) -> None:
    """Say one sentence on standard error."""
    print(f"captioner: {sentence}", file=sys.stderr, flush=True)


def report_too_long(shown: str, line: int, lost: int, reads: int) -> None:
    """Say that the last `lost` tokens of a line of a file are not read.

    shown: what the file is called. reads: tokens that the model reads.
    """
    report(
        f"{shown}, line {line}, is too long: its last {lost:,} tokens are not read, since the "
        f"model reads {reads:,}"
    )


def report_cut(shown: str, line: int, longest: int, rank: int = 1) -> None:
    """Say that the translation of a line of a file had to end at the longest length, in tokens.

    rank: which of its translations it is.
    """
    which = "translation" if rank == 1 else f"translation {rank}"
    report(f"{shown}: {which} of line {line} was cut at {longest:,} tokens")


def report_left_out(left_out: Mapping[str, str] | None, total: int) -> None:
    """Say why each photo was left out, and how many of `total` were; nothing where none was.

    left_out: by the photo's name, a sentence that says why.
    """
    if left_out:
        for reason in left_out.values():
            report(reason)
        report(f"{len(left_out):,} of {total:,} photos could not be read and do not count")
