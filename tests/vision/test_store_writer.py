"""Filling a store: whatever stops it, and however many do it, every row is there once and right."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from store_samples import IMAGES, KEY, SHAPE, Encoder, build, vectors
from torch import Tensor

from captioner.errors import UserError
from captioner.vision import store_writer
from captioner.vision.feature_store import FeatureStore
from captioner.vision.store_index import Shard, StoreKey, default_rows_per_shard
from captioner.vision.store_writer import StoreWriter

processes = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes cannot be forked here"
)


@contextlib.contextmanager
def child(work: Callable[[], object]) -> Iterator[Any]:
    """A process that does the work; killed where the block ends before it."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


class Gate:
    """Encodes as `vectors` does, notes the rows in a file, and stops at some row until let go."""

    def __init__(self, notes: Path, stop_at: int | None = None) -> None:
        self.notes, self.stop_at = notes, stop_at
        context = multiprocessing.get_context("fork")
        self.reached, self.opened = context.Event(), context.Event()

    def __call__(self, rows: Sequence[int]) -> Tensor:
        if self.stop_at in rows:
            self.reached.set()
            assert self.opened.wait(60)
        with self.notes.open("a") as file:
            file.write("".join(f"{row}\n" for row in rows))
        return vectors(rows)

    def rows(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()] if self.notes.exists() else []


def recorded(folder: Path) -> list[int]:
    """The rows that the store's records count as done."""
    rows: list[int] = []
    for number in range(3):
        path = folder / f"shard-0000{number}.json"
        done = json.loads(path.read_text())["done"] if path.exists() else 0
        rows += range(8 * number, 8 * number + done)
    return rows


def test_images_that_cannot_be_read_are_kept_in_mind_over_a_stop(tmp_path: Path) -> None:
    def reading(found: dict[str, str], stop_at: int | None) -> Any:
        def encode(rows: Sequence[int]) -> Tensor:
            if stop_at in rows:
                raise KeyboardInterrupt
            found.update({IMAGES[row]: f"row {row} is cut off" for row in rows if row in (3, 15)})
            return vectors(rows)

        return encode

    first: dict[str, str] = {}
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, reading(first, 9), unreadable=first)
    second: dict[str, str] = {}
    store = build(tmp_path, reading(second, None), unreadable=second)
    expected = {"3.jpg": "row 3 is cut off", "15.jpg": "row 15 is cut off"}
    assert store.unreadable == second == expected
    assert FeatureStore(tmp_path, KEY).unreadable == expected


def test_vectors_of_another_shape_are_not_spread_over_the_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"encode gave \(2, 1, 4\), not \(2, 3, 4\)"):
        build(tmp_path, lambda rows: torch.zeros(len(rows), 1, 4))
    assert torch.equal(build(tmp_path, Encoder()).read(range(20)), vectors(range(20)))


@pytest.mark.parametrize("error", [RuntimeError("bad photo"), KeyboardInterrupt()])
@pytest.mark.parametrize("stop_at", [0, 1, 6, 11, 19])
def test_a_stopped_extraction_goes_on_where_it_was(
    tmp_path: Path, stop_at: int, error: BaseException
) -> None:
    first = Encoder(stop_at, error)
    with pytest.raises(type(error)):
        build(tmp_path, first)
    with pytest.raises(UserError, match=f"unfinished: {len(first.rows)} of 20 images"):
        FeatureStore(tmp_path, KEY)
    second = Encoder()
    store = build(tmp_path, second)
    assert first.rows + second.rows == list(range(20))
    assert torch.equal(store.read(range(20)), vectors(range(20)))


@processes
def test_a_killed_extraction_loses_only_what_was_not_safe(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "notes", stop_at=15)
    with child(lambda: build(tmp_path / "store", gate)):
        assert gate.reached.wait(60)
    assert gate.rows() == list(range(14))
    # Each six rows are made safe, and each shard as it is full; rows 8 to 13 are six.
    assert recorded(tmp_path / "store") == list(range(14))
    gate = Gate(tmp_path / "more", stop_at=19)
    with child(lambda: build(tmp_path / "store", gate)):
        assert gate.reached.wait(60)
    assert recorded(tmp_path / "store") == list(range(16))
    with pytest.raises(UserError, match="unfinished: 16 of 20"):
        FeatureStore(tmp_path / "store")
    third = Encoder()
    store = build(tmp_path / "store", third)
    assert third.rows == list(range(16, 20))  # Rows 16 and 17 were not on disk for sure.
    assert torch.equal(store.read(range(20)), vectors(range(20)))


CALLS = ("posix_fallocate", "ftruncate", "pwrite", "fsync", "replace")
"""What changes files, in `os`."""


@processes
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_call_loses_and_doubles_nothing(tmp_path: Path, after: bool) -> None:
    """Killed before, or after, the first, the second, ... call that changes a file."""

    def killed() -> None:
        calls = 0

        def counted(call: Any) -> Any:
            def run(*given: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                result = call(*given)
                if calls == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return run

        for name in CALLS:
            if hasattr(os, name):
                setattr(os, name, counted(getattr(os, name)))
        build(tmp_path / "store", Encoder())

    number, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        number += 1
        with child(killed) as process:
            process.join(60)
            code = process.exitcode
        done = recorded(tmp_path / "store")
        rest = Encoder()
        store = build(tmp_path / "store", rest)
        assert sorted([*done, *rest.rows]) == list(range(20))
        assert torch.equal(store.read(range(20)), vectors(range(20)))
        names = {path.name.split(".")[0] for path in (tmp_path / "store").iterdir()}
        assert names - {""} == {"index", *(f"shard-0000{number}" for number in range(3))}
        shutil.rmtree(tmp_path / "store")
    assert code == 0
    assert number > 25  # Claims, writes, records: it was stopped at each.


def test_rows_are_on_disk_before_a_record_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, pwrite, write_record = os.fsync, os.pwrite, Shard.write_record

    def noted(name: str, call: Any) -> Any:
        def run(*given: Any) -> Any:
            events.append(name)
            return call(*given)

        return run

    writer = StoreWriter(tmp_path, IMAGES, SHAPE, KEY, 8)
    monkeypatch.setattr(store_writer.os, "pwrite", noted("row", pwrite))
    monkeypatch.setattr(store_writer.os, "fsync", noted("flush", fsync))
    monkeypatch.setattr(Shard, "write_record", noted("record", write_record))
    writer.fill(lambda batches: map(vectors, batches), 4, sync_every=4)
    # Writing a record flushes it, too.
    assert events == ["row", "flush", "record", "flush"] * 5


@processes
def test_two_processes_share_the_work(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    first, second = Gate(tmp_path / "first", stop_at=3), Gate(tmp_path / "second")
    with child(lambda: build(folder, first)) as holder:
        assert first.reached.wait(60)
        with child(lambda: build(folder, second)) as helper:
            while len(second.rows()) < 12:  # All but the shard that the first holds ...
                time.sleep(0.01)
                assert helper.is_alive()
            first.opened.set()
            helper.join(60)
            holder.join(60)
            assert (holder.exitcode, helper.exitcode) == (0, 0)
    assert first.rows() == list(range(8))
    assert second.rows() == list(range(8, 20))  # ... and each row by one of them alone.
    assert torch.equal(FeatureStore(folder, KEY).read(range(20)), vectors(range(20)))
    alone = build(tmp_path / "alone", Encoder())
    for shard in sorted(folder.glob("*.bin")):
        assert shard.read_bytes() == (alone.folder / shard.name).read_bytes()
    assert [path.name for path in folder.glob(".*")] == [".lock"]


@processes
def test_what_a_killed_process_held_is_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    first, second = Gate(tmp_path / "first", stop_at=7), Gate(tmp_path / "second")
    with child(lambda: build(folder, first)) as holder:
        assert first.reached.wait(60)
        with child(lambda: build(folder, second)) as helper:
            while len(second.rows()) < 12:
                time.sleep(0.01)
                assert helper.is_alive()
            holder.kill()
            helper.join(60)
            assert helper.exitcode == 0
    assert first.rows() == list(range(6))
    assert second.rows() == [*range(8, 20), 6, 7]
    assert torch.equal(FeatureStore(folder, KEY).read(range(20)), vectors(range(20)))


@processes
def test_several_processes_that_begin_at_once_make_one_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    gates = [Gate(tmp_path / f"notes-{number}") for number in range(4)]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(child(lambda gate=gate: build(folder, gate)))  # type: ignore[misc]
            for gate in gates
        ]
        for process in started:
            process.join(60)
        assert [process.exitcode for process in started] == [0] * 4
    assert sorted(row for gate in gates for row in gate.rows()) == list(range(20))
    assert torch.equal(FeatureStore(folder, KEY).read(range(20)), vectors(range(20)))


def test_one_pass_leaves_what_another_holds(tmp_path: Path) -> None:
    """Two writers in one process exclude each other as two processes do."""
    pytest.importorskip("fcntl")
    first, second = (StoreWriter(tmp_path, IMAGES, SHAPE, KEY, 8) for _ in range(2))

    def fill_second(batches: Any) -> Iterator[Tensor]:
        for number, batch in enumerate(batches):
            if batch.start < 8 and number == 0:
                second.fill(lambda rest: map(vectors, rest))
                assert (second.written, second.done, second.finished) == (12, 12, False)
            yield vectors(batch)

    first.fill(fill_second, batch_size=2, sync_every=2)
    assert (first.written, first.done, first.finished) == (8, 20, True)
    second.refresh()
    assert second.finished


def test_all_space_is_claimed_at_once(tmp_path: Path) -> None:
    if not hasattr(os, "posix_fallocate"):
        pytest.skip("space cannot be claimed here")
    StoreWriter(tmp_path, ["a", "b", "c"], (196, 512), KEY, 2)
    claimed = [path.stat().st_blocks * 512 for path in sorted(tmp_path.glob("*.bin"))]
    assert claimed[0] >= 2 * 200_704
    assert claimed[1] >= 200_704


@pytest.mark.parametrize("claims", [True, False])
def test_a_full_disk_is_a_sentence_at_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: bool
) -> None:
    made: list[int] = []

    def full(descriptor: int, start: int, size: int) -> None:
        made.append(size)
        if len(made) == 3:
            raise OSError(28, "No space left on device")

    if claims:
        monkeypatch.setattr(store_writer.os, "posix_fallocate", full, raising=False)
    else:
        monkeypatch.delattr(store_writer.os, "posix_fallocate", raising=False)
        usage = shutil.disk_usage(tmp_path)._replace(free=479)
        monkeypatch.setattr(store_writer.shutil, "disk_usage", lambda folder: usage)
    sentence = "cannot make feature store .* of 480 bytes: No space left on device"
    with pytest.raises(UserError, match=sentence):
        build(tmp_path, Encoder())
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    monkeypatch.undo()
    assert len(build(tmp_path, Encoder())) == 20


def test_a_disk_that_fills_up_meanwhile_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where space cannot be claimed."""
    pwrite = os.pwrite

    def full(descriptor: int, content: Any, place: int) -> int:
        if place >= 6 * 24:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, bytes(content[:7]), place)  # And never all at once.

    monkeypatch.setattr(store_writer.os, "pwrite", full)
    with pytest.raises(UserError, match=r"cannot write feature store .*: No space left on device"):
        build(tmp_path, Encoder())
    monkeypatch.undo()
    second = Encoder()
    store = build(tmp_path, second)
    assert second.rows == list(range(6, 20))
    assert torch.equal(store.read(range(20)), vectors(range(20)))


def test_shards_without_an_index_are_not_taken_for_this_store(tmp_path: Path) -> None:
    other = StoreKey("another", "store")
    build(tmp_path, lambda rows: torch.zeros(len(rows), *SHAPE), key=other, rows_per_shard=2)
    (tmp_path / "index.json").unlink()
    encoder = Encoder()
    store = build(tmp_path, encoder)
    assert encoder.rows == list(range(20))
    assert torch.equal(store.read(range(20)), vectors(range(20)))
    assert len(list(tmp_path.glob("*.bin"))) == 3


def test_encoders_that_give_too_little_are_an_error(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, IMAGES, SHAPE, KEY, 8)
    with pytest.raises(ValueError, match="shorter"):
        writer.fill(lambda batches: map(vectors, list(batches)[:1]), 2)
    assert writer.done == 2


def test_an_encoder_left_early_is_closed(tmp_path: Path) -> None:
    closed: list[bool] = []

    def encode(batches: Any) -> Iterator[Tensor]:
        try:
            for batch in batches:
                yield vectors(batch)
        finally:
            closed.append(True)

    def stop() -> None:
        raise KeyboardInterrupt

    writer = StoreWriter(tmp_path, IMAGES, SHAPE, KEY, 8)
    with pytest.raises(KeyboardInterrupt):
        writer.fill(encode, 2, progress=stop)
    assert closed == [True]
    assert recorded(tmp_path) == [0, 1]


@pytest.mark.parametrize(
    ("count", "rows", "shards"),
    [(0, 256, 0), (100, 256, 1), (12_000, 375, 32), (113_287, 2048, 56), (226_574, 2048, 111)],
)
def test_shards_are_many_enough_to_share_and_not_too_large(
    count: int, rows: int, shards: int
) -> None:
    assert default_rows_per_shard(count) == rows
    assert -(-count // rows) == shards
