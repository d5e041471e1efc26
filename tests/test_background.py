from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from captioner.background import MOST_WORKERS, in_background, workers_for


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    assert list(in_background(lambda item: -item, range(20), workers)) == [-n for n in range(20)]


def test_no_more_items_are_read_ahead_than_there_are_workers() -> None:
    read: list[int] = []
    results = in_background(lambda item: item, _noted(read), 2)
    for number in range(5):
        assert next(results) == number
        assert len(read) == number + 3


def test_as_many_items_as_workers_are_computed_at_once() -> None:
    together = threading.Barrier(2, timeout=60)
    assert sorted(in_background(lambda _: together.wait(), range(4), 2)) == [0, 0, 1, 1]


def test_workers_share_the_threads_of_the_processor() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        assert list(in_background(lambda _: torch.get_num_threads(), range(3), 2)) == [2, 2, 2]
        assert torch.get_num_threads() == 4
        later = in_background(lambda _: torch.get_num_threads(), range(1), 1)
        assert list(later) == [4]
    finally:
        torch.set_num_threads(threads)


def test_an_error_is_raised_in_its_place() -> None:
    def compute(item: int) -> int:
        if item == 1:
            raise ValueError("the second")
        return item

    results = in_background(compute, range(4), 2)
    assert next(results) == 0
    with pytest.raises(ValueError, match="the second"):
        next(results)


def test_one_batch_takes_all_cores_and_a_gpu_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    cpu = torch.device("cpu")
    assert workers_for(cpu, 16, 16) == 0
    assert workers_for(cpu, 17, 16) == MOST_WORKERS
    assert workers_for(torch.device("cuda"), 17, 16) == 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert workers_for(cpu, 17, 16) == 2


def _noted(read: list[int]) -> Iterator[int]:
    for number in range(1_000):
        read.append(number)
        yield number
