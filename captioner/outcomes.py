"""Computes items in batches and in threads; a bad one may fail without the others."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from captioner.errors import UserError
from captioner.memory_limits import allowed_cores

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Source = TypeVar("Source")
Input = TypeVar("Input")
Result = TypeVar("Result")

MOST_WORKERS = 4  # Each has a batch in memory.


def share_out(threads: int, items: int, batch_size: int, most: int) -> tuple[int, int]:
    """Choose how many batches to compute at once, `most` at most, and their size.

    The size is the largest, up to `batch_size`, that keeps all workers busy. One batch: 0 workers.

    threads: of a CPU, where the threads of one batch wait for each other; 1 for a GPU, where the
        worker computes while the next batch is read.
    """
    if items <= batch_size:
        return 0, batch_size
    workers = min(threads, most)
    rounds = math.ceil(items / (batch_size * workers))
    return workers, math.ceil(items / (rounds * workers))


def loading_workers(device: torch.device, local_ranks: int = 1) -> int:
    """Processes or threads that load photos, where `local_ranks` processes share the cores."""
    if device.type != "cuda":  # A model uses every core of a CPU; macOS cannot fork safely.
        return 0
    return max(1, min(8, allowed_cores() // local_ranks))


def in_background(
    compute: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield the result of each item, in order; items are read in the calling thread.

    workers: threads, each with a share of torch's threads; as many items are computed ahead. 0:
        compute in the calling thread, nothing ahead.
    """
    if workers == 0:
        yield from map(compute, items)
        return
    torch = sys.modules.get("torch")  # Without torch there are no threads of it to share.
    threads = torch.get_num_threads() if torch else 0
    share = partial(torch.set_num_threads, max(1, threads // workers)) if torch else None
    pool = ThreadPoolExecutor(workers, initializer=share)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(compute, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        if torch:
            torch.set_num_threads(threads)  # It also counts for threads to come.


@dataclass(frozen=True)
class Failed:
    """A photo or sentence without a result, and the reason in one sentence."""

    name: str
    reason: str

    def __str__(self) -> str:
        return self.reason


def outcomes_of(
    named: Iterable[tuple[str, Source]],
    batch_size: int,
    read: Callable[[str, Source], Input],
    compute: Callable[[list[Input]], Iterable[Result]],
    readers: int = 0,
    workers: int = 0,
) -> Iterator[Result | Failed]:
    """Read so many items at a time and compute their results together, in order.

    named: their names for messages, and what to read. An item fails for which `read` raises
        `UserError` or runs out of memory.
    readers, workers: threads that read an item each, or compute a batch each; see `in_background`.
    """

    def attempt(item: tuple[str, Source]) -> Input | Failed:
        name, source = item
        try:
            return read(name, source)
        except UserError as error:
            return Failed(name, str(error))
        except MemoryError:
            return Failed(name, f"{name} needs more memory than there is")

    items = in_background(attempt, named, readers)
    batches = iter(lambda: list(islice(items, batch_size)), [])
    results = in_background(partial(with_results, compute=compute), batches, workers)
    return chain.from_iterable(results)


def with_results(
    inputs: Iterable[Input | Failed], compute: Callable[[list[Input]], Iterable[Result]]
) -> list[Result | Failed]:
    """Replace inputs by their results, computed together; a `Failed` keeps its place."""
    inputs = list(inputs)
    results = iter(compute([item for item in inputs if not isinstance(item, Failed)]))
    return [item if isinstance(item, Failed) else next(results) for item in inputs]


def shape_as_given(items: object, is_one: bool, outcomes: Iterator[object], on_error: str) -> Any:
    """Outcomes in the form of the input: one, an iterator, or a list for a collection.

    on_error: `raise` the reason of the first `Failed` as `UserError`, or `skip`: it is an outcome.
    """
    if on_error not in ("raise", "skip"):
        raise UserError(f"on_error {on_error!r} is neither 'raise' nor 'skip'")

    def result(outcome: object) -> object:
        if isinstance(outcome, Failed) and on_error == "raise":
            raise UserError(outcome.reason)
        return outcome

    results = map(result, outcomes)
    if is_one:
        return next(results)
    return results if isinstance(items, Iterator) else list(results)
