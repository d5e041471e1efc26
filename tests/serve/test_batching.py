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
def started() -> Iterator[tuple[Work, Batcher]]:
    """A queue of batches of four whose thread works on item 0, so that later items wait."""
    work = Work()
    batcher = Batcher(work, 4, "test")
    batcher.submit([0], "a")
    work.begun.wait()
    yield work, batcher
    work.go.set()
    batcher.close()


@pytest.mark.parametrize(
    ("jobs", "sizes"),
    [
        ([[1], [2], [3], [4], [5], [6]], [4, 2]),
        # They stay whole and in order, and a larger one goes by itself.
        ([[1, 2, 3], [4], [5, 6, 7], [8, 9], list(range(20, 30)), [10]], [4, 3, 2, 10, 1]),
    ],
)
def test_waiting_jobs_share_a_batch_and_get_their_own_results(
    jobs: list[list[int]], sizes: list[int]
) -> None:
    with started() as (work, batcher):
        promises = [batcher.submit(items, "a") for items in jobs]
    assert [promise.result() for promise in promises] == [[2 * n for n in job] for job in jobs]
    assert [len(items) for items, _ in work.batches] == [1, *sizes]


def test_a_batch_has_one_key() -> None:
    with started() as (work, batcher):
        for number, key in enumerate("aabba", start=1):
            batcher.submit([number], key)
    assert work.batches[1:] == [([1, 2], "a"), ([3, 4], "b"), ([5], "a")]


def test_a_cancelled_job_is_skipped_and_an_error_ends_its_batch_and_no_other() -> None:
    with started() as (work, batcher):
        jobs = ((1, "a"), (2, "a"), (13, "b"), (4, "a"))
        cancelled, good, bad, last = [batcher.submit([number], key) for number, key in jobs]
        assert cancelled.cancel()
    with pytest.raises(CancelledError):
        cancelled.result()
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert (good.result(), last.result()) == ([4], [8])
    assert [items for items, _ in work.batches] == [[0], [2], [13], [4]]
