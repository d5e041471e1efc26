"""Batches work of requests that wait at the same time.

One thread works. Meanwhile jobs queue; the thread then takes all that fit together, up to the batch
size. So no job waits for a batch to fill, and batches grow with the load.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
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
    alone: bool
    done: Future[list[Result]] = field(default_factory=Future)


class Batcher(Generic[Item, Key, Result]):
    """A queue and the thread that works on it.

    work: takes items and their common key; returns one result an item, in order. Called from one
        thread only.
    batch_size: most items of a batch of several jobs; a larger job is not batched with others.
    seconds_an_item: by the last batches; 0 before the first.
    """

    def __init__(
        self, work: Callable[[Sequence[Item], Key], list[Result]], batch_size: int, name: str
    ) -> None:
        self._work = work
        self._batch_size = batch_size
        self._jobs: deque[_Job[Item, Key, Result]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self.seconds_an_item = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, items: Sequence[Item], key: Key, alone: bool = False) -> Future[list[Result]]:
        """Queue items; returns the future of their results, in order.

        key: only jobs of one key share a batch. alone: shares no batch. A future cancelled before
        its turn is skipped. An error of `work` ends the future of the job that causes it only.
        Raises `RuntimeError` after `close`.
        """
        job: _Job[Item, Key, Result] = _Job(items, key, alone)
        with self._changed:
            if self._closed:
                raise RuntimeError("the queue is closed")
            self._jobs.append(job)
            self._changed.notify()
        return job.done

    @property
    def waiting(self) -> int:
        """Number of items in the queue."""
        with self._changed:
            return sum(len(job.items) for job in self._jobs)

    def close(self) -> None:
        """Finish the queue, refuse more, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            # From here on a future cannot be cancelled.
            batch = [job for job in batch if job.done.set_running_or_notify_cancel()]
            if batch:
                started = time.monotonic()
                self._answer(batch)
                count = sum(len(job.items) for job in batch)
                seconds = (time.monotonic() - started) / max(1, count)
                share = 0.3 if self.seconds_an_item else 1.0
                self.seconds_an_item += share * (seconds - self.seconds_an_item)

    def _next_batch(self) -> list[_Job[Item, Key, Result]]:
        """The oldest job and those that fit with it; empty after `close`."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            if not self._jobs:
                return []
            first = self._jobs.popleft()
            batch = [first]
            if first.alone:
                return batch
            room = self._batch_size - len(first.items)
            passed: deque[_Job[Item, Key, Result]] = deque()
            while self._jobs and room > 0:
                job = self._jobs.popleft()
                if not job.alone and job.key == first.key and len(job.items) <= room:
                    batch.append(job)
                    room -= len(job.items)
                else:
                    passed.append(job)
            self._jobs.extendleft(reversed(passed))
            return batch

    def _answer(self, batch: list[_Job[Item, Key, Result]]) -> None:
        items = [item for job in batch for item in job.items]
        try:
            results = self._work(items, batch[0].key)
        except Exception as error:
            if len(batch) == 1:
                batch[0].done.set_exception(error)
                return
            for job in batch:  # Only the job that causes the error fails.
                self._answer([job])
            return
        place = 0
        for job in batch:
            job.done.set_result(results[place : place + len(job.items)])
            place += len(job.items)
