"""Loading ahead: the same items in order, errors where they belong, no process left behind."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from captioner.data import loading
from captioner.data.loading import load_ahead, loading_workers
from captioner.errors import UserError


def load(number: int) -> tuple[int, torch.Tensor]:
    if number == 5:
        raise UserError("photo 5 is gone")
    if number == 7:
        raise KeyError("a mistake")
    return os.getpid(), torch.full((2,), number)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_come_in_the_order_of_the_keys(workers: int) -> None:
    state = torch.get_rng_state()
    keys = [3, 0, 2, 4, 0]
    items = list(load_ahead(load, keys, workers))
    assert [int(item[1][0]) for item in items] == keys
    assert len({process for process, _ in items} - {os.getpid()}) == workers
    assert torch.equal(torch.get_rng_state(), state)  # Or dropout would depend on loading.
    assert list(load_ahead(load, [], workers)) == []
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_raised_in_the_place_of_its_item(workers: int) -> None:
    items = load_ahead(load, [1, 2, 5, 4], workers)
    assert [int(next(items)[1][0]) for _ in range(2)] == [1, 2]
    with pytest.raises(UserError, match=r"^photo 5 is gone$"):
        next(items)
    assert multiprocessing.active_children() == []
    if not workers:  # torch waits 5 seconds for a worker after any other error.
        with pytest.raises(KeyError, match="a mistake"):
            list(load_ahead(load, [7], workers))


def test_workers_load_into_pinned_memory_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def loader(items: object, *, pin_memory: bool, **options: object) -> list[object]:
        asked.append(pin_memory)
        return []

    monkeypatch.setattr(loading, "DataLoader", loader)
    for has_gpu, workers in ((True, 2), (False, 2), (True, 0)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        assert list(load_ahead(load, [1], workers)) == []
    assert asked == [hasattr(os, "fork"), False, False]


def test_workers_load_two_items_ahead_and_end_when_the_items_are_closed(tmp_path: Path) -> None:
    def note(number: int) -> int:
        (tmp_path / str(number)).touch()
        return number

    items = load_ahead(note, range(100), 2)
    assert list(tmp_path.iterdir()) == []
    for number in range(10):
        assert next(items) == number
        assert len(list(tmp_path.iterdir())) <= number + 1 + 2 * 2
    items.close()
    assert multiprocessing.active_children() == []
    assert len(list(tmp_path.iterdir())) <= 15


def test_a_cpu_has_no_loading_processes_and_a_gpu_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert [loading_workers(torch.device(kind)) for kind in ("cpu", "mps")] == [0, 0]
    counts = [loading_workers(torch.device("cuda"), ranks) for ranks in (1, 2, 4, 100)]
    assert counts == [8, 6, 3, 1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_items_for_a_gpu_are_in_pinned_memory() -> None:
    assert all(item[1].is_pinned() for item in load_ahead(load, [1, 2], 1))
