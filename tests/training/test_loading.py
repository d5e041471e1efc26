"""Items loaded ahead by other processes: in order, and errors in their place."""

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from captioner.errors import UserError
from captioner.training.batches import Loader


def load(number: int) -> tuple[int, torch.Tensor]:
    if number == 5:
        raise UserError("photo 5 is gone")
    return os.getpid(), torch.full((2,), number)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_come_in_the_order_of_the_keys_from_the_same_processes(workers: int) -> None:
    state, others = torch.get_rng_state(), multiprocessing.active_children()
    loader, keys = Loader(load, workers), [3, 0, 2, 4, 0]
    found = list(loader(keys))
    assert [int(item[1][0]) for item in found] == keys
    processes = {process for process, _ in found}
    assert len(processes - {os.getpid()}) == workers
    assert [int(item[1][0]) for item in loader(iter([1, 2]))] == [1, 2]
    assert {process for process, _ in loader(keys)} == processes  # Also of the next epoch.
    assert torch.equal(torch.get_rng_state(), state)  # Or dropout would depend on loading.
    assert list(loader([])) == []
    del loader
    assert set(multiprocessing.active_children()) <= set(others)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_raised_in_the_place_of_its_item(workers: int) -> None:
    loader = Loader(load, workers)
    items = loader([1, 2, 5, 4])
    assert [int(next(items)[1][0]) for _ in range(2)] == [1, 2]
    with pytest.raises(UserError, match=r"^photo 5 is gone$"):
        next(items)
    assert [int(item[1][0]) for item in loader([4, 3])] == [4, 3]


def test_workers_load_an_item_ahead_each_and_go_on_after_an_epoch_is_left(tmp_path: Path) -> None:
    def note(number: int) -> int:
        (tmp_path / str(number)).touch()
        return number

    loader = Loader(note, 2)
    items = loader(range(100))
    assert [next(items) for _ in range(10)] == list(range(10))
    assert len(list(tmp_path.iterdir())) <= 12
    items.close()
    assert list(loader([200, 201, 202])) == [200, 201, 202]
