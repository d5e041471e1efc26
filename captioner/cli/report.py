"""What commands say on standard error about items of a batch that were bad."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def report(sentence: str) -> None:
    """Say one sentence on standard error."""
    print(f"captioner: {sentence}", file=sys.stderr, flush=True)


def report_left_out(left_out: Mapping[str, str] | None, total: int) -> None:
    """Say why each photo was left out, and how many of `total` were; nothing where none was.

    left_out: by the photo's name, a sentence that says why.
    """
    if left_out:
        for reason in left_out.values():
            report(reason)
        report(f"{len(left_out):,} of {total:,} photos could not be read and do not count")
