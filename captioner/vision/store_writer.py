"""Filling a feature store, alone or beside other processes, on one machine or several.

Each shard is filled by one process at a time, which holds the operating system's lock on its file;
the lock is freed however the process ends, and whoever takes the shard next goes on behind its last
safe row. A row is safe when its data have been flushed to disk (fsync) and then the shard's record
that counts it has been renamed into place, in this order.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.files import folder_lock, try_lock
from captioner.vision.store_index import (
    Record,
    Shard,
    StoreIndex,
    StoreKey,
    default_rows_per_shard,
    index_exists,
    read_index,
    storage_bytes,
)

Encode = Callable[[Iterable[Sequence[int]]], Iterator[Tensor]]
"""Batches of row numbers, in order -> for each its annotation vectors (B, L, D)."""

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would turn line ends otherwise.


class StoreWriter:
    """A store that this process fills, alone or beside others.

    done: rows known to be done, by whomever. written: rows that this writer has written.
    """

    def __init__(
        self,
        folder: Path,
        images: Sequence[str],
        shape: tuple[int, int],
        key: StoreKey,
        rows_per_shard: int | None = None,
    ) -> None:
        """Make the store, with all the space that it will take, or join in filling it.

        images: N names, one a row. shape: (L, D).
        rows_per_shard: of a store that is made; by default `default_rows_per_shard`.
        Raises `UserError` when the folder holds a store of other images, another encoder or
        preprocessing or an unfinished one of the first format, and when there is no room for it.
        """
        if not index_exists(folder):
            # Whoever comes second waits here until the first has made it.
            with folder_lock(folder, "feature store", wait=True):
                if not index_exists(folder):
                    rows = rows_per_shard or default_rows_per_shard(len(images))
                    _create(StoreIndex(folder, key, shape, list(images), rows))
        self.index = read_index(folder)
        self.index.check_same(images, shape, key)
        one_file = self.index.one_file
        if one_file is not None and one_file.done < len(images):
            raise UserError(
                f"feature store {folder} is unfinished, and of the first format, which is no "
                f"longer written; give another folder or delete it"
            )
        self.written = 0
        self._shards = self.index.shards
        self._records = self.index.read_records()

    @property
    def done(self) -> int:
        """Rows known to be done: all that this process wrote, of others those that are safe."""
        return sum(record.done for record in self._records)

    @property
    def finished(self) -> bool:
        """Whether all rows are done."""
        return self.done == len(self.index.images)

    @property
    def unreadable(self) -> dict[str, str]:
        """Images, with reasons, that are known to be unreadable."""
        return {name: why for record in self._records for name, why in record.unreadable.items()}

    def refresh(self) -> None:
        """See what other processes have done. Raises `UserError` where a record is damaged."""
        for number, shard in enumerate(self._shards):
            if self._records[number].done < shard.count:
                self._records[number] = shard.read_record()

    def fill(
        self,
        encode: Encode,
        batch_size: int = 32,
        sync_every: int = 512,
        unreadable: dict[str, str] | None = None,
        progress: Callable[[], None] | None = None,
    ) -> None:
        """Fill every shard that no other process holds; whether all are then is `finished`.

        encode: is asked for the rows of one shard at a time, and closed if it is left early.
        sync_every: rows between two moments at which work is made safe against a stop.
        unreadable: images, with reasons, whose rows hold nothing; `encode` adds to it as it goes.
        progress: called after each batch.

        Raises `UserError` when `batch_size` is below 1, when the disk is full or fails, and where
        a shard is damaged. Whatever `encode` raises passes through; what was done before it stays
        done, and so it is with `KeyboardInterrupt`.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        unreadable = {} if unreadable is None else unreadable
        for number, shard in enumerate(self._shards):
            if self._records[number].done == shard.count:
                continue
            with self._held(number) as descriptor:
                if descriptor is None:
                    continue
                filling = _Filling(self, number, descriptor, unreadable)
                filling.run(encode, batch_size, sync_every, progress)

    @contextlib.contextmanager
    def _held(self, number: int) -> Iterator[int | None]:
        """The file of a shard, to this process alone; None where another has it or it is done."""
        shard = self._shards[number]
        try:
            descriptor = os.open(shard.data, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
        except OSError as error:
            raise self._failed(error) from None
        try:
            free = try_lock(descriptor) is not False
            record = self._records[number] = shard.read_record()
            if not free or record.done == shard.count:
                yield None
                return
            if record.done == 0:
                # Its space has been claimed, unless someone has deleted a damaged file.
                try:
                    _claim(descriptor, storage_bytes(shard.count, self.index.shape))
                except OSError as error:
                    raise self._failed(error) from None
            self.index.check_size(shard)
            for left in shard.data.parent.glob(f".{shard.data.stem}-*"):
                left.unlink(missing_ok=True)  # Of a process that was killed as it wrote a record.
            yield descriptor
        finally:
            os.close(descriptor)

    def _failed(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write feature store {self.index.folder}: {error.strerror or error}"
        )


class _Filling:
    """One shard, held by this process, as it is filled."""

    def __init__(
        self, writer: StoreWriter, number: int, descriptor: int, unreadable: dict[str, str]
    ) -> None:
        self.writer, self.number, self.descriptor = writer, number, descriptor
        self.unreadable = unreadable
        self.shard: Shard = writer._shards[number]
        self.safe = writer._records[number].done
        self.unreadable.update(writer._records[number].unreadable)

    def run(
        self,
        encode: Encode,
        batch_size: int,
        sync_every: int,
        progress: Callable[[], None] | None,
    ) -> None:
        first, end = self.shard.first + self.safe, self.shard.first + self.shard.count
        batches = [
            range(start, min(start + batch_size, end)) for start in range(first, end, batch_size)
        ]
        found = encode(iter(batches))
        try:
            for batch, vectors in zip(batches, found, strict=True):
                self._write(batch, vectors)
                if progress is not None:
                    progress()
                if self._done - self.safe >= sync_every:
                    self._sync()
        finally:
            if self._done > self.safe:
                self._sync()
            close = getattr(found, "close", None)  # Of a generator.
            if close is not None:
                close()

    @property
    def _done(self) -> int:
        return self.writer._records[self.number].done

    def _write(self, batch: range, vectors: Tensor) -> None:
        shape = self.writer.index.shape
        expected = (len(batch), *shape)
        if vectors.shape != expected:
            raise ValueError(f"encode gave {tuple(vectors.shape)}, not {expected}")
        rows = vectors.detach().to(torch.float16).cpu().contiguous()  # (B, L, D)
        left = rows.numpy().data.cast("B")
        place = storage_bytes(batch.start - self.shard.first, shape)
        try:
            while left:
                count = _write_at(self.descriptor, left, place)
                left, place = left[count:], place + count
        except OSError as error:
            raise self.writer._failed(error) from None
        names = self.writer.index.images
        found = [names[row] for row in batch if names[row] in self.unreadable]
        lost = {name: self.unreadable[name] for name in found}
        before = self.writer._records[self.number].unreadable
        self.writer._records[self.number] = Record(
            batch.stop - self.shard.first, {**before, **lost} if lost else before
        )
        self.writer.written += len(batch)

    def _sync(self) -> None:
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            raise self.writer._failed(error) from None
        record = self.writer._records[self.number]
        self.shard.write_record(record)
        self.safe = record.done


def _create(index: StoreIndex) -> None:
    """Make the shards of a store, empty, and then its index."""
    size = storage_bytes(len(index.images), index.shape)
    try:
        # Of a store whose index is gone nobody knows what it holds.
        shards = {shard.data for shard in index.shards}
        for stale in set(index.folder.glob("shard-*")) - shards:
            stale.unlink(missing_ok=True)
        if not hasattr(os, "posix_fallocate") and shutil.disk_usage(index.folder).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for shard in index.shards:
            descriptor = os.open(shard.data, os.O_RDWR | os.O_CREAT | _BINARY, 0o666)
            try:
                _claim(descriptor, storage_bytes(shard.count, index.shape))
            finally:
                os.close(descriptor)
        index.write()
    except BaseException as error:
        for shard in index.shards:  # What a full disk had room for is given back.
            with contextlib.suppress(OSError):
                shard.data.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(
                f"cannot make feature store {index.folder} of {size:,} bytes: "
                f"{error.strerror or error}"
            ) from None
        raise


def _claim(descriptor: int, size: int) -> None:
    """Give a file its size, and the space on disk: a full disk is to be known before the work."""
    if os.fstat(descriptor).st_size == size:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, max(size, 1))
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # Some file systems cannot.
                raise
    os.ftruncate(descriptor, size)
    os.fsync(descriptor)


def _write_at(descriptor: int, content: memoryview, place: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, content, place)
    os.lseek(descriptor, place, os.SEEK_SET)  # Windows.
    return os.write(descriptor, content)
