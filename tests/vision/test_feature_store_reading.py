"""Reading a store: any memory, any threads, any process, and none of it kept."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path

import pytest
import torch
from store_samples import IMAGES, KEY, SHAPE, Encoder, build, vectors
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captioner.errors import UserError
from captioner.vision import feature_store
from captioner.vision.feature_store import FeatureStore, build_store


def test_a_file_cut_while_it_is_read_is_a_sentence(tmp_path: Path) -> None:
    store = build(tmp_path, Encoder())
    os.truncate(tmp_path / "shard-00001.bin", 24)
    assert torch.equal(store.read([8]), vectors([8]))
    with pytest.raises(UserError, match=r"damaged: .*shard-00001\.bin is cut"):
        store.read([8, 9])


def test_rows_are_read_as_they_are_stored_where_that_is_wanted(tmp_path: Path) -> None:
    store = build(tmp_path, Encoder())
    rows = [19, 3, 8, 7, 3]
    half = store.read(rows, torch.float16)
    assert half.dtype == torch.float16
    assert torch.equal(half.float(), vectors(rows))
    assert store.read(rows, torch.bfloat16).dtype == torch.bfloat16
    memory = torch.zeros(5, *SHAPE, dtype=torch.float16)
    assert store.read(rows, torch.float16, out=memory).data_ptr() == memory.data_ptr()
    assert torch.equal(memory, half)
    assert torch.equal(store.read(rows, out=memory), vectors(rows))
    for wrong in (memory.float(), memory[:4], torch.zeros(5, 4, 3).half().transpose(1, 2)):
        with pytest.raises(ValueError, match=r"out is not contiguous float16 of shape \(5, 3, 4\)"):
            store.read(rows, out=wrong)


@pytest.mark.parametrize("row", [-1, 20])
def test_a_row_that_is_not_there_is_an_error(tmp_path: Path, row: int) -> None:
    store = build(tmp_path, Encoder())
    with pytest.raises(IndexError, match="rows 0 to 19 only"):
        store.read([0, row])


def test_large_reads_are_shared_among_threads_and_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(tmp_path, Encoder())
    rows = torch.randint(20, (1500,), generator=torch.Generator().manual_seed(0))
    alone = store.read(rows)
    assert torch.equal(alone, vectors(rows.tolist()))
    monkeypatch.setattr(feature_store, "_THREADS", 3)
    monkeypatch.setattr(feature_store, "_FEWEST_BYTES", 0)
    assert torch.equal(store.read(rows), alone)
    assert torch.equal(store.read(range(20)), vectors(range(20)))
    assert store.read([]).shape == (0, *SHAPE)


@pytest.mark.parametrize("most", [5, 1000])
def test_calls_that_read_less_than_asked_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """As a system may do when a signal comes, and does at two gigabytes."""
    store = build(tmp_path, Encoder())
    calls: list[int] = []

    def short(file: int, buffers: list[memoryview], place: int) -> int:
        content = os.pread(file, min(most, sum(map(len, buffers))), place)
        calls.append(len(content))
        left = content
        for buffer in buffers:
            buffer[: len(left)] = left[: len(buffer)]
            left = left[len(buffer) :]
        return len(content)

    monkeypatch.setattr(feature_store.os, "preadv", short, raising=False)
    assert torch.equal(store.read(range(20)), vectors(range(20)))
    # Rows that lie one behind the other, in one shard, are one call.
    assert most == 5 or calls == [8 * 24, 8 * 24, 4 * 24]


def test_a_system_without_positional_reads_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(tmp_path, Encoder())
    monkeypatch.delattr(feature_store.os, "preadv", raising=False)
    rows = [19, 3, 8, 7, 3]
    assert torch.equal(store.read(rows), vectors(rows))


def test_a_store_can_be_pickled(tmp_path: Path) -> None:
    store = build(tmp_path, Encoder())
    store.read([0])
    again: FeatureStore = pickle.loads(pickle.dumps(store))
    del store
    assert torch.equal(again.read([19, 0]), vectors([19, 0]))
    assert again.images == IMAGES


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read_from_a_store_that_was_opened_before(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"processes are not started by {method} here")
    monkeypatch.setattr(feature_store, "_THREADS", 2)
    monkeypatch.setattr(feature_store, "_FEWEST_BYTES", 0)  # Its threads do not come along.
    store = build(tmp_path, Encoder())
    store.read(range(20))

    loader = DataLoader(
        _Rows(store), batch_size=None, num_workers=1, multiprocessing_context=method, shuffle=False
    )
    found = list(loader)
    assert torch.equal(torch.cat(found), vectors(range(20)))


class _Rows(Dataset[Tensor]):
    """A store's rows, five at a time."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Tensor:
        if number >= 4:
            raise IndexError
        return self.store.read(range(5 * number, 5 * number + 5))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_reading_all_of_a_store_leaves_nothing_in_memory(tmp_path: Path) -> None:
    """16 MB, read in batches of 1 MB into the same memory: the process does not grow by them."""
    shape = (64, 256)
    store = build_store(
        tmp_path, [str(row) for row in range(512)], shape, KEY, lambda rows: torch.ones(32, *shape)
    )
    memory = torch.empty(32, *shape, dtype=torch.float16)

    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssA", "RssF")))

    store.read(range(32), torch.float16, out=memory)
    before = resident()
    for first in range(0, 512, 32):
        store.read(range(first, first + 32), torch.float16, out=memory)
    assert resident() - before < 4096  # KiB
