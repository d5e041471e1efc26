from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager

import pytest

from captioner.serve.service import Batcher


class Work:
    """Doubles numbers and records its batches; the first call waits for `go`."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[int], str]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, items: Sequence[int], key: str) -> list[int]:
        self.batches.append((list(items), key))
        self.begun.set()
        self.go.wait()
        if 13 in items:
            raise ZeroDivisionError
        return [2 * item for item in items]


@contextmanager
def started(batch_size: int = 4) -> Iterator[tuple[Work, Batcher[int, str, int]]]:
    """A queue whose thread works on item 0, so that later items wait."""
    work = Work()
    batcher: Batcher[int, str, int] = Batcher(work, batch_size, "test")
    batcher.submit([0], "a")
    work.begun.wait()
    yield work, batcher
    work.go.set()
    batcher.close()


def test_waiting_jobs_share_a_batch_and_get_their_own_results() -> None:
    with started() as (work, batcher):
        promises = [batcher.submit([number], "a") for number in range(1, 7)]
        work.go.set()
        assert [promise.result() for promise in promises] == [[2], [4], [6], [8], [10], [12]]
    assert [items for items, _ in work.batches] == [[0], [1, 2, 3, 4], [5, 6]]


def test_jobs_stay_whole_and_in_order_and_a_larger_one_goes_by_itself() -> None:
    with started() as (work, batcher):
        jobs = [[1, 2, 3], [4], [5, 6, 7], [8, 9], list(range(20, 30)), [10]]
        promises = [batcher.submit(items, "a") for items in jobs]
        work.go.set()
        assert [promise.result() for promise in promises] == [[2 * n for n in job] for job in jobs]
    assert [len(items) for items, _ in work.batches] == [1, 4, 3, 2, 10, 1]


def test_a_batch_has_one_key() -> None:
    with started() as (work, batcher):
        for number, key in enumerate("aabba", start=1):
            batcher.submit([number], key)
    assert work.batches[1:] == [([1, 2], "a"), ([3, 4], "b"), ([5], "a")]


def test_a_promise_that_is_cancelled_is_passed_over() -> None:
    with started() as (work, batcher):
        promises = [batcher.submit([number], "a") for number in (1, 2)]
        assert promises[0].cancel()
        work.go.set()
        assert promises[1].result() == [4]
        with pytest.raises(CancelledError):
            promises[0].result()
    assert [items for items, _ in work.batches] == [[0], [2]]


def test_an_error_ends_its_batch_and_no_other() -> None:
    with started() as (work, batcher):
        promises = [batcher.submit([number], key) for number, key in ((1, "a"), (13, "b"))]
        work.go.set()
        assert promises[0].result() == [2]
        with pytest.raises(ZeroDivisionError):
            promises[1].result()
        assert batcher.submit([3], "a").result() == [6]


def test_closing_finishes_the_queue() -> None:
    with started() as (_, batcher):
        promises = [batcher.submit([number], "a") for number in range(9)]
    assert [promise.result() for promise in promises] == [[2 * n] for n in range(9)]
