"""Annotation vectors of the photos of one split, computed once and kept on disk.

A store is a folder:

- `record.json`: which photos, and the encoder and preprocessing that made their vectors;
- `rows.npy`: the vectors, (N, L, D) float16, a row a photo, NaN of one that could not be read;
  behind them, in a store with mirrored photos, as many rows again;
- `states.json`: of each photo when it was encoded, to notice changes;
- `done-0.bin`, `done-1.bin`, ...: a file for each process that writes, with a byte for each row.

Each process writes an equal share of the batches, one after the other, so that each reads other
shards; a row is encoded in the same batch however many there are. A row is flushed to disk before
its byte is set: a kill costs at most the rows of the last second.
"""

import math
import os
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import compress, groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from captioner import files
from captioner.errors import UserError
from captioner.schema import Config, flat, from_mapping, to_mapping

RECORD = "record.json"
ROWS = "rows.npy"
STATES = "states.json"

_DONE, _UNREADABLE = 1, 2  # The bytes of `done-*.bin`; 0 is a row yet to be written.
_FLUSH_SECONDS = 1.0
MappedRows = np.memmap[tuple[int, ...], np.dtype[np.float16]]  # (N, L, D), mapped for reading.


class StoreRecord(Config):
    """What a store holds and what made it.

    encoder: its configuration, the digest of its weights, the precision of its products. images: N
    names. shape: (L, D). mirrored: rows N to 2N - 1 hold the same photos mirrored.
    """

    encoder: dict[str, object]
    preprocessing: dict[str, object]
    images: list[str]
    shape: tuple[int, int] = Field(strict=False)
    mirrored: bool = False
    dtype: str = "float16"

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.images) * (1 + self.mirrored)


class StoreWriter(AbstractContextManager["StoreWriter"]):
    """Writes the rows of one process into a store; a context that flushes them at its end."""

    def __init__(self, folder: Path, record: StoreRecord, rank: int = 0, ranks: int = 1) -> None:
        """Create the store or go on with it."""
        if not os.path.exists(folder / RECORD):  # A finished store may be in a folder to read only.
            with files.lock(folder / ".lock", f"feature store {folder}", wait=True):
                if not os.path.exists(folder / RECORD):
                    _create_store(folder, record)
        _read_record(folder, record)
        self._start = _map_rows(folder, record).offset
        self.folder, self.record, self.rank, self.ranks = folder, record, rank, ranks
        self._pending: dict[int, tuple[bytes, bytes]] = {}  # By row: its vectors, and its mark.
        self._flushed = time.monotonic()

    def forget_changed(self, states: Sequence[Sequence[int]]) -> list[str]:
        """Mark the rows of changed photos as not written; returns the names of the photos.

        states: of each photo now, such as its size and time of change. A new store takes these.
        """
        path, now = self.folder / STATES, [list(state) for state in states]
        if path.exists() and files.read_json(path, "states of the photos") == now:
            return []
        with files.lock(self.folder / ".lock", f"feature store {self.folder}", wait=True):
            before = files.read_json(path, "states of the photos") if path.exists() else now
            is_changed = [before[row : row + 1] != [state] for row, state in enumerate(now)]
            if not path.exists() or any(is_changed):
                for marks in self.folder.glob("done-*.bin"):
                    done = np.fromfile(marks, np.uint8)
                    done[np.resize(is_changed, len(done))] = 0  # Repeats: also mirrored rows.
                    files.write_bytes(marks, done.tobytes())
                files.write_json(path, now, indent=None)
        return list(compress(self.record.images, is_changed))

    def missing(self, batch_size: int) -> list[list[int]]:
        """The batches of this process, each without the rows that are done."""
        undone = np.flatnonzero(_read_states(self.folder, self.record.rows) == 0)
        count = math.ceil(self.record.rows / batch_size)
        first, end = (count * rank // self.ranks for rank in (self.rank, self.rank + 1))
        batches = groupby(undone.tolist(), lambda row: row // batch_size)
        return [[*rows] for number, rows in batches if first <= number < end]

    def write(self, rows: Sequence[int], vectors: Tensor, unreadable: Collection[int] = ()) -> None:
        """Write vectors (B, L, D) to rows; unreadable: those of photos that cannot be read."""
        content = vectors.detach().to(torch.float16).cpu().contiguous().numpy()  # (B, L, D)
        for row, values in zip(rows, content, strict=True):
            mark = _UNREADABLE if row in unreadable else _DONE
            self._pending[row] = values.tobytes(), bytes([mark])
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows to disk, then mark them done; a finished store is only read."""
        if not self._pending:
            return
        done = self.folder / f"done-{self.rank}.bin"
        vectors, marks = zip(*self._pending.values(), strict=True)
        written = (self.folder / ROWS, self._start, vectors), (done, 0, marks)
        # Files, not a writable map: on a full disk a write to a map kills the process.
        with files.refuse_os_errors(f"cannot write feature store {self.folder}"):
            done.touch()
            files.flush_folder(self.folder)
            for path, start, contents in written:
                with path.open("r+b") as file:
                    for row, content in zip(self._pending, contents, strict=True):
                        file.seek(start + row * len(content))
                        file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        self._pending.clear()
        self._flushed = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.flush()


class FeatureStore:
    """A finished store; without an open file: pickled, forked and read by several threads.

    record: what the reader expects. unreadable: the rows of photos that could not be read.
    """

    def __init__(self, folder: Path, record: StoreRecord | None = None) -> None:
        self.folder = folder
        self.record = _read_record(folder, record)
        states = _read_states(folder, self.record.rows)
        if not states.all():
            done = f"{np.count_nonzero(states)} of {len(states)} rows"
            advice = "run the extraction again to go on with it"
            raise UserError(f"feature store {folder} is unfinished: {done}; {advice}")
        _map_rows(folder, self.record)
        self.unreadable = frozenset(np.flatnonzero(states == _UNREADABLE).tolist())

    def read(self, rows: Sequence[int] | Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Annotation vectors of rows, in the given order: (B, L, D) of `dtype`."""
        # Mapped anew each time: pages that were read count as memory of the process until then.
        picked = _map_rows(self.folder, self.record)[np.asarray(rows, np.int64)]
        return torch.from_numpy(picked).to(dtype)


def _create_store(folder: Path, record: StoreRecord) -> None:
    """Create an empty store, whose record is written last."""
    shape = (record.rows, *record.shape)
    size = 2 * math.prod(shape)
    free = shutil.disk_usage(folder).free
    if free < size:
        raise UserError(f"feature store {folder} takes {size:,} bytes, and the disk has {free:,}")
    files.remove_temporaries(folder, age=0)  # Only who holds the lock writes them.
    (folder / STATES).unlink(missing_ok=True)
    for marks in folder.glob("done-*.bin"):  # Left by a store whose record was deleted.
        marks.unlink()
    with files.atomic_path(folder / ROWS) as path:
        np.lib.format.open_memmap(path, "w+", np.float16, shape)
    files.write_json(folder / RECORD, to_mapping(record), indent=None)


def _read_record(folder: Path, wanted: StoreRecord | None) -> StoreRecord:
    """The record of a store. Raises `UserError` that names what differs from `wanted`."""
    path = folder / RECORD
    record = from_mapping(StoreRecord, files.read_json(path, "feature store record"), str(path))
    stored, expected = (flat(to_mapping(each)) for each in (record, wanted or record))
    names = stored.keys() | expected.keys()
    if others := sorted(name for name in names if stored.get(name) != expected.get(name)):
        fault = f"feature store {folder} differs from this run in {', '.join(others)}"
        raise UserError(f"{fault}; set another features.folder or delete it")
    return record


def _read_states(folder: Path, count: int) -> NDArray[np.uint8]:
    """A byte for each of the `count` rows of a store, (N,) uint8: 0 where it is not done."""
    states = np.zeros(count, np.uint8)
    for path in folder.glob("done-*.bin"):
        marks = np.fromfile(path, np.uint8)[:count]  # It ends behind the last row marked.
        np.maximum(states[: len(marks)], marks, out=states[: len(marks)])
    return states


def _map_rows(folder: Path, record: StoreRecord) -> MappedRows:
    """The rows of a store, (N, L, D) float16, mapped for reading."""
    with suppress(OSError, ValueError, EOFError):
        rows: MappedRows = np.load(folder / ROWS, mmap_mode="r")
        if rows.shape == (record.rows, *record.shape) and rows.dtype == np.float16:
            return rows
    raise UserError(f"feature store {folder} is damaged: {ROWS} is not whole; delete the store")
