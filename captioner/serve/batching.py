"""Batches work of requests that wait at the same time.

One thread works. Meanwhile jobs queue; the thread then takes all that fit together, up to the batch
size. So no job waits for a batch to fill, and batches grow with the load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclass
class _Job(Generic[Item, Key, Result]):
    """Items submitted together, and the future of their results."""

    items: Sequence[Item]
    key: Key
    done: Future[list[Result]] = field(default_factory=Future)


class Batcher(Generic[Item, Key, Result]):
    """A queue and the thread that works on it.

    work: takes items and their common key; returns one result an item, in order. Called from one
        thread only.
    batch_size: most items of a batch of several jobs; a larger job is not batched with others.
    jobs: those that wait.
    """

    def __init__(
        self, work: Callable[[Sequence[Item], Key], list[Result]], batch_size: int, name: str
    ) -> None:
        self._work = work
        self._batch_size = batch_size
        self._thread = ThreadPoolExecutor(1, name)
        self.jobs: deque[_Job[Item, Key, Result]] = deque()

    def submit(self, items: Sequence[Item], key: Key) -> Future[list[Result]]:
        """Queue items; returns the future of their results, in order.

        key: only jobs of one key share a batch. A future cancelled before its turn is skipped. An
        error of `work` ends the futures of its batch.
        """
        job: _Job[Item, Key, Result] = _Job(items, key)
        self.jobs.append(job)
        self._thread.submit(self._run)  # Finds no job if an earlier call has taken all.
        return job.done

    def close(self) -> None:
        """Finish the queue and end the thread."""
        self._thread.shutdown()

    def _run(self) -> None:
        # From here on a future cannot be cancelled.
        batch = [job for job in self._next_batch() if job.done.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            results = self._work([item for job in batch for item in job.items], batch[0].key)
        except Exception as error:
            for job in batch:
                job.done.set_exception(error)
            return
        for job in batch:
            job.done.set_result(results[: len(job.items)])
            results = results[len(job.items) :]

    def _next_batch(self) -> list[_Job[Item, Key, Result]]:
        """The oldest job and those after it that fit; empty if none waits."""
        batch: list[_Job[Item, Key, Result]] = []
        count = 0
        while self.jobs:
            job = self.jobs[0]
            count += len(job.items)
            if batch and (job.key != batch[0].key or count > self._batch_size):
                break
            batch.append(self.jobs.popleft())
        return batch
