"""Reports bad items of a batch on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def report(sentence: str) -> None:
    """Print one sentence on standard error."""
    print(f"captioner: {sentence}", file=sys.stderr, flush=True)


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
