"""Annotation vectors of a set of photos, computed once and kept on disk.

`captioner.vision.store_index` says what a store looks like, `captioner.vision.store_writer` how
several processes fill one; here it is read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.vision.store_index import StoreKey, read_index, storage_bytes
from captioner.vision.store_writer import StoreWriter

__all__ = ["FeatureStore", "StoreKey", "build_store", "storage_bytes"]

POLL_SECONDS = 0.5
"""How often a process that has nothing left to fill looks whether the others have finished."""

_THREADS = min(4, os.cpu_count() or 1)
_FEWEST_BYTES = 4 << 20  # Of a read that is worth sharing among threads.
_BUFFERS = 512  # In one call: operating systems take 1,024 at most.
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would turn line ends otherwise.


class FeatureStore:
    """A finished store, opened for reading.

    Rows are read by place into memory that is made for them: nothing is mapped or kept, so a
    process that reads a store of any size does not grow. A store may be pickled, and used on both
    sides of a fork; several threads may read at once.
    """

    def __init__(self, folder: Path, key: StoreKey | None = None) -> None:
        """Open the store in `folder`.

        key: what the reader expects; a store made with another encoder or preprocessing is
        refused. Raises `UserError` for that, for an unfinished store and for a damaged one.
        """
        self._files: list[int] = []
        self._threads: tuple[int, ThreadPoolExecutor] | None = None
        self._lock = threading.Lock()
        index = read_index(folder)
        if key is not None:
            index.check_key(key)
        records = index.read_records()
        done = sum(record.done for record in records)
        if done < len(index.images):
            raise UserError(
                f"feature store {folder} is unfinished: {done} of "
                f"{len(index.images)} images; run the extraction again to continue it"
            )
        self._shards = index.shards
        for shard in self._shards:
            index.check_size(shard)
        self.folder = folder
        self.key = index.key
        self.images = index.images
        # Images whose rows hold nothing, with the reasons.
        self.unreadable: dict[str, str] = {}
        for record in records:
            self.unreadable.update(record.unreadable)
        self.shape = index.shape
        self._rows_per_shard = max(index.rows_per_shard, 1)

    def __len__(self) -> int:
        return len(self.images)

    def read(
        self,
        rows: Sequence[int] | Tensor,
        dtype: torch.dtype = torch.float32,
        out: Tensor | None = None,
    ) -> Tensor:
        """Annotation vectors of the given rows, in the given order: (B, L, D) of `dtype`.

        dtype: what is stored is float16; where that is wanted nothing is converted.
        out: float16 memory (B, L, D) on the CPU, contiguous, to read into (pinned, perhaps, or
            used again for each batch: fresh memory costs about as much as reading). It is what is
            returned where `dtype` is float16.
        Raises `IndexError` for a row that the store has not, and `UserError` when the disk fails.
        """
        picked = numpy.asarray(rows, dtype=numpy.int64)  # (B,)
        if picked.size and (picked.min() < 0 or picked.max() >= len(self)):
            raise IndexError(f"feature store {self.folder} has rows 0 to {len(self) - 1} only")
        shape = (len(picked), *self.shape)
        if out is None:
            out = torch.empty(shape, dtype=torch.float16)
        elif out.shape != shape or out.dtype != torch.float16 or not out.is_contiguous():
            raise ValueError(f"out is not contiguous float16 of shape {shape}")
        content = out.numpy().data.cast("B") if out.numel() else memoryview(b"")
        order = numpy.argsort(picked, kind="stable")  # (B,)
        if len(content) < _FEWEST_BYTES or _THREADS == 1:
            self._read(picked, order, content)
        else:
            parts = numpy.array_split(order, _THREADS)
            list(self._pool().map(lambda part: self._read(picked, part, content), parts))
        return out.to(dtype)

    def _read(self, picked: Any, order: Any, content: memoryview) -> None:
        """Read the rows at these places of `picked` to the same places of `content`."""
        size = storage_bytes(1, self.shape)
        begin = 0
        while begin < len(order):
            first = int(picked[order[begin]])
            # Rows that lie one behind the other are read in one call, wherever each of them goes.
            last = self._shards[first // self._rows_per_shard]
            most = min(len(order) - begin, last.first + last.count - first, _BUFFERS)
            count = 1
            while count < most and picked[order[begin + count]] == first + count:
                count += 1
            places = order[begin : begin + count].tolist()
            self._read_run(first, [content[place * size : (place + 1) * size] for place in places])
            begin += count

    def _read_run(self, first: int, buffers: list[memoryview]) -> None:
        """Fill buffers with row `first` of the store and those behind it, in the same shard."""
        number = first // self._rows_per_shard
        shard = self._shards[number]
        place = storage_bytes(first - shard.first, self.shape)
        try:
            file = self._open()[number]
            while buffers:
                count = self._read_at(file, buffers, place)
                if count == 0:
                    raise UserError(f"feature store {self.folder} is damaged: {shard.data} is cut")
                place += count
                while buffers and count >= len(buffers[0]):
                    count -= len(buffers.pop(0))
                if count:
                    buffers[0] = buffers[0][count:]
        except OSError as error:
            raise UserError(f"cannot read {shard.data}: {error.strerror or error}") from None

    def _read_at(self, file: int, buffers: list[memoryview], place: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(file, buffers, place)
        with self._lock:  # Windows: the place in a file is one for all threads.
            os.lseek(file, place, os.SEEK_SET)
            content = os.read(file, len(buffers[0]))
        buffers[0][: len(content)] = content
        return len(content)

    def _open(self) -> list[int]:
        """The shards' files; opened on the first use, so that workers open their own."""
        if not self._files:
            with self._lock:
                if not self._files:
                    self._files = [
                        os.open(shard.data, os.O_RDONLY | _BINARY) for shard in self._shards
                    ]
        return self._files

    def _pool(self) -> ThreadPoolExecutor:
        """This process's threads: a fork does not take them along."""
        process = os.getpid()
        if self._threads is None or self._threads[0] != process:
            self._threads = process, ThreadPoolExecutor(_THREADS, "feature-store")
        return self._threads[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": [], "_threads": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __del__(self) -> None:
        for file in getattr(self, "_files", []):
            os.close(file)


def build_store(
    folder: Path,
    images: Sequence[str],
    shape: tuple[int, int],
    key: StoreKey,
    encode: Callable[[Sequence[int]], Tensor],
    batch_size: int = 32,
    progress: Callable[[int], None] | None = None,
    sync_every: int = 512,
    unreadable: dict[str, str] | None = None,
    rows_per_shard: int | None = None,
) -> FeatureStore:
    """Fill a store, or continue one that was stopped, and open it.

    Several processes that do so at once share the work; each returns when all of it is done.

    images: N names, one a row. shape: (L, D). encode: row numbers -> annotation vectors (B, L, D).
    progress: called with the number of rows done, at the start and after each batch.
    sync_every: rows between two moments at which work is made safe against a stop.
    unreadable: images, with reasons, whose rows hold nothing; `encode` adds to it as it goes, and
        it is kept in the store. Without it nothing may be unreadable.
    rows_per_shard: of a store that is made; by default enough shards for many processes.

    Raises `UserError` when the folder holds a store of other photos, another encoder or another
    preprocessing, when `batch_size` is below 1, and when the disk is full. Whatever `encode`
    raises passes through; what was done before it stays done.
    """
    writer = StoreWriter(folder, images, shape, key, rows_per_shard)
    unreadable = {} if unreadable is None else unreadable

    def show() -> None:
        if progress is not None:
            progress(writer.done)

    def stream(batches: Iterable[Sequence[int]]) -> Iterator[Tensor]:
        return map(encode, batches)

    show()
    writer.fill(stream, batch_size, sync_every, unreadable, show)
    while not writer.finished:
        time.sleep(POLL_SECONDS)
        writer.fill(stream, batch_size, sync_every, unreadable, show)
        show()
    store = FeatureStore(folder, key)
    unreadable.update(store.unreadable)
    return store
