"""The feature store: every row once and right, whatever stops its writers; nothing foreign read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from store_samples import IMAGES, RECORD, SHAPE, build, fill, vectors
from torch import Tensor

from captioner.errors import UserError
from captioner.schema import to_mapping
from captioner.vision.feature_store import FeatureStore, StoreWriter, create_store, read_states


def done_rows(folder: Path) -> list[int]:
    return [int(row) for row in numpy.flatnonzero(read_states(folder, 20))]


# Reading.


def test_rows_come_back_in_any_order(tmp_path: Path) -> None:
    store = build(tmp_path / "store")
    rows = [7, 0, 19, 7]
    assert torch.equal(store.read(rows), vectors(rows))
    assert torch.equal(store.read(torch.tensor(rows)), vectors(rows))
    assert store.read(rows).dtype == torch.float32
    half = store.read(rows, torch.float16)
    assert half.dtype == torch.float16
    assert torch.equal(half.float(), vectors(rows))
    assert store.read(rows, torch.bfloat16).dtype == torch.bfloat16
    assert torch.equal(pickle.loads(pickle.dumps(store)).read(rows), vectors(rows))
    assert len(store) == 20
    assert store.record == RECORD
    plain = numpy.load(tmp_path / "store" / "rows.npy")
    assert plain.dtype == numpy.float16
    assert numpy.array_equal(plain, vectors(range(20)).numpy())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_filling_and_reading_a_store_leaves_nothing_in_memory(tmp_path: Path) -> None:
    """64 MB, written and read in batches of 1 MB: the process does not grow by them."""
    shape = (64, 256)
    record = RECORD.replace(images=[str(row) for row in range(2048)], shape=shape)
    memory = torch.ones(32, *shape, dtype=torch.float16)

    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssA", "RssF")))

    with StoreWriter(tmp_path, record) as writer:
        writer.write(range(32), memory)
        before = resident()
        for first in range(32, 2048, 32):
            writer.write(range(first, first + 32), memory)
        assert resident() - before < 8192  # KiB
    store = FeatureStore(tmp_path)
    store.read(range(32), torch.float16)
    before = resident()
    for first in range(0, 2048, 32):
        store.read(range(first, first + 32), torch.float16)
    assert resident() - before < 8192  # KiB


# Refusing.


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            {"encoder": {"name": "vgg19", "weights": "b" * 64}},
            "was made with encoder.weights 'aaaaaaaaaaaa', not 'bbbbbbbbbbbb'",
        ),
        ({"mirrored": True}, "was made with mirrored False, not True"),
        ({"images": IMAGES[::-1]}, "holds other images"),
        ({"shape": (4, 3)}, "was made with shape [3, 4], not [4, 3]"),
    ],
)
def test_a_store_with_another_record_is_refused(
    tmp_path: Path, change: dict[str, Any], difference: str, finished: bool
) -> None:
    if finished:
        build(tmp_path)
    else:
        create_store(tmp_path, RECORD)
    wanted = RECORD.replace(**change)
    for open_store in (
        lambda: FeatureStore(tmp_path, wanted),
        lambda: StoreWriter(tmp_path, wanted),
        lambda: create_store(tmp_path, wanted),
    ):
        with pytest.raises(UserError) as caught:
            open_store()
        assert str(caught.value) == (
            f"feature store {tmp_path} {difference}; set another features.folder or delete it"
        )
    fill(tmp_path)
    assert torch.equal(FeatureStore(tmp_path, RECORD).read([19]), vectors([19]))


@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_a_damaged_array_is_refused(tmp_path: Path, damage: str) -> None:
    store = build(tmp_path)
    path = tmp_path / "rows.npy"
    if damage == "cut":
        os.truncate(path, path.stat().st_size - 2)
    elif damage == "gone":
        path.unlink()
    else:
        numpy.save(path, numpy.zeros((20, 4, 3), numpy.float16))
    for use in (lambda: FeatureStore(tmp_path), lambda: store.read([8, 9])):
        with pytest.raises(UserError, match=r"damaged: rows\.npy is not whole; delete the store"):
            use()


def test_a_missing_or_damaged_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"feature store record .*record\.json does not exist"):
        FeatureStore(tmp_path)
    (tmp_path / "record.json").write_text('{"images": ["capt')
    with pytest.raises(UserError, match=r"feature store record .* is not valid JSON"):
        StoreWriter(tmp_path, RECORD)
    (tmp_path / "record.json").write_text(json.dumps({**to_mapping(RECORD), "images": [1]}))
    with pytest.raises(UserError, match=r"record\.json: images.* should be text"):
        FeatureStore(tmp_path)


# Writing.


def test_photos_that_could_not_be_read_are_remembered(tmp_path: Path) -> None:
    for rows in (range(10), range(10, 20)):  # By two runs.
        with StoreWriter(tmp_path, RECORD) as writer:
            writer.write(rows, vectors(rows), {3, 15})
    assert FeatureStore(tmp_path).unreadable == {3, 15}


def test_vectors_of_another_shape_are_not_spread_over_the_rows(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"vectors are \(2, 1, 4\), not \(2, 3, 4\)"),
        StoreWriter(tmp_path, RECORD) as writer,
    ):
        writer.write([0, 1], torch.zeros(2, 1, 4))
    assert done_rows(tmp_path) == []


@pytest.mark.parametrize("error", [RuntimeError("bad photo"), KeyboardInterrupt()])
@pytest.mark.parametrize("stop_at", [0, 1, 6, 11, 19])
def test_a_stopped_extraction_goes_on_where_it_was(
    tmp_path: Path, stop_at: int, error: BaseException
) -> None:
    def encode(rows: Sequence[int]) -> Tensor:
        if stop_at in rows:
            raise error
        return vectors(rows)

    with pytest.raises(type(error)):
        fill(tmp_path, encode=encode)
    before = 2 * (stop_at // 2)
    with pytest.raises(UserError, match=f"unfinished: {before} of 20 rows"):
        FeatureStore(tmp_path, RECORD)
    assert fill(tmp_path) == list(range(before, 20))
    assert torch.equal(FeatureStore(tmp_path, RECORD).read(range(20)), vectors(range(20)))


def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    done = [2, 3, 9]
    with StoreWriter(tmp_path, RECORD, 1, 2) as writer:
        writer.write(done, vectors(done))
    found = [fill(tmp_path, RECORD, rank, 3) for rank in range(3)]
    assert {path.name for path in tmp_path.glob("*.bin")} == {
        f"done-{rank}.bin" for rank in range(3)
    }
    assert found == [[0, 1, 6, 7, 12, 13, 18, 19], [8, 14, 15], [4, 5, 10, 11, 16, 17]]
    assert torch.equal(FeatureStore(tmp_path, RECORD).read(range(20)), vectors(range(20)))


def test_a_disk_without_room_is_a_sentence_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=479)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UserError, match="takes 480 bytes, and the disk has 479 left"):
        create_store(tmp_path, RECORD)
    monkeypatch.undo()
    assert len(build(tmp_path)) == 20


def test_a_disk_that_fills_up_meanwhile_is_a_sentence(tmp_path: Path) -> None:
    class Full:
        """Takes seven bytes at a time, and none of the seventh row."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, content: memoryview) -> int:
            if self.file.tell() >= 128 + 6 * 24:
                raise OSError(28, "No space left on device")
            written: int = self.file.write(content[:7])
            return written

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    sentence = "cannot write feature store .*: No space left on device"
    with StoreWriter(tmp_path, RECORD) as writer:
        writer._rows = Full(writer._rows)  # type: ignore[assignment]
        for row in range(0, 6, 2):
            writer.write([row, row + 1], vectors([row, row + 1]))
        with pytest.raises(UserError, match=sentence):
            writer.write([6, 7], vectors([6, 7]))
    assert fill(tmp_path) == list(range(6, 20))
    assert torch.equal(FeatureStore(tmp_path).read(range(20)), vectors(range(20)))


def test_marks_without_a_record_are_not_taken_for_this_store(tmp_path: Path) -> None:
    fill(tmp_path, encode=lambda rows: torch.zeros(len(rows), *SHAPE))
    (tmp_path / "record.json").unlink()
    assert fill(tmp_path) == list(range(20))
    assert torch.equal(FeatureStore(tmp_path).read(range(20)), vectors(range(20)))
