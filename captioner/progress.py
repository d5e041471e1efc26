"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import io
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

_LINE_SECONDS = 10.0  # Least time between two plain lines.
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
_LINE = "{desc}: {n_fmt}/{total_fmt}{unit}, {rate_noinv_fmt}, {elapsed} taken, {remaining} left"


class _Bar(tqdm):  # type: ignore[type-arg]
    monitor_interval = 0  # No thread.


class _Lines(_Bar):
    _printed: float = 0

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Print the line, except for the empty bar at the start and a count printed before."""
        if self.n > max(self.initial, self._printed):
            self._printed = self.n
            # In one piece: `torchrun` starts several processes, without buffers.
            sys.stderr.write(f"{self}\n")
            sys.stderr.flush()


def progress_bar(
    what: str, total: int, unit: str = "items", start: int = 0, shown: bool = True
) -> "tqdm[object]":
    """Shows progress on standard error. start: items done before, which the rate leaves out."""
    options: dict[str, Any] = {"desc": what, "total": total, "unit": f" {unit}", "initial": start}
    options |= {"smoothing": 0, "miniters": 0}  # Items come in batches: only the mean rate holds.
    if sys.stderr.isatty():
        options |= {"mininterval": 0, "dynamic_ncols": True, "bar_format": _BAR}
        return _Bar(**options, disable=not shown)
    options |= {"mininterval": _LINE_SECONDS, "file": io.StringIO()}
    return _Lines(**options, disable=not shown, bar_format=_LINE + "{postfix}")


def counted_by(progress: "tqdm[object]", items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, each counted when the next comes: the first of a batch is not all of it."""
    is_begun = 0
    for item in items:
        progress.update(is_begun)
        is_begun = 1
        yield item
    progress.update(is_begun)
