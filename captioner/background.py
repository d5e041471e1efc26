"""Computes batches in threads while the next ones are read."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_WORKERS = 4
"""Each has a batch in memory."""


def workers_for(device: torch.device, items: int, batch_size: int) -> int:
    """How many batches to compute at once; 0 if there is one only, which then takes all cores.

    On a CPU a batch for each of its threads: that keeps cores busy which would wait for each other
    at every operation. Elsewhere one, to read the next meanwhile.
    """
    if items <= batch_size:
        return 0
    import torch

    return min(torch.get_num_threads(), MOST_WORKERS) if device.type == "cpu" else 1


def even_batch_size(items: int, batch_size: int, workers: int) -> int:
    """The largest batch, of at most `batch_size`, that gives all workers as much to do."""
    rounds = math.ceil(items / (batch_size * workers))
    return math.ceil(items / (rounds * workers))


def loading_workers(device: torch.device, local_ranks: int = 1) -> int:
    """Processes or threads that load photos, where `local_ranks` processes share the cores.

    0 on a CPU, where the model uses every core, and on MPS, where macOS cannot fork safely.
    """
    if device.type != "cuda":
        return 0
    return max(1, min(8, (os.cpu_count() or 1) // local_ranks))


def in_background(
    compute: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield the result of each item, in order. Items are read in the calling thread.

    workers: threads that share the processor's, with as many items ahead; 0: compute each item
        before the next is read.
    """
    if workers == 0:
        yield from map(compute, items)
        return
    import torch

    threads = torch.get_num_threads()
    share = partial(torch.set_num_threads, max(1, threads // workers))
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
        torch.set_num_threads(threads)  # It also counts for threads to come.
