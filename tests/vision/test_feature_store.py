"""The feature store: every row once and right, whatever stops its writers; nothing foreign read."""

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
from torch import Tensor

from captioner.errors import UserError
from captioner.schema import to_mapping
from captioner.vision.feature_store import (
    FeatureStore,
    StoreRecord,
    StoreWriter,
    create_store,
    read_states,
)

SHAPE = (3, 4)
IMAGES = [f"{number}.jpg" for number in range(20)]
RECORD = StoreRecord(
    encoder={"name": "vgg19", "weights": "a" * 64},
    preprocessing={"size": 32},
    images=IMAGES,
    shape=SHAPE,
)


def vectors(rows: Sequence[int]) -> Tensor:
    """What the encoder gives for these rows: numbers that float16 holds exactly."""
    offsets = torch.arange(12.0).view(1, *SHAPE) / 16
    return torch.tensor([float(row) for row in rows]).view(-1, 1, 1) + offsets


def fill(folder: Path, rank: int = 0, ranks: int = 1, encode: Any = vectors) -> list[int]:
    """Write what is missing, two rows at a time; returns the rows written."""
    with StoreWriter(folder, RECORD, rank, ranks) as writer:
        batches = writer.missing(2)
        for rows in batches:
            writer.write(rows, encode(rows))
    return [row for rows in batches for row in rows]


def assert_whole(folder: Path) -> None:
    assert torch.equal(FeatureStore(folder, RECORD).read(range(20)), vectors(range(20)))


def test_rows_come_back_in_any_order(tmp_path: Path) -> None:
    fill(tmp_path)
    store = FeatureStore(tmp_path, RECORD)
    rows = [7, 0, 19, 7]
    assert torch.equal(store.read(rows), vectors(rows))
    assert torch.equal(store.read(torch.tensor(rows)), vectors(rows))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert store.read(rows, dtype).dtype == dtype
    assert torch.equal(store.read(rows, torch.float16).float(), vectors(rows))
    assert torch.equal(pickle.loads(pickle.dumps(store)).read(rows), vectors(rows))
    assert len(store) == 20
    assert store.record == RECORD
    plain = numpy.load(tmp_path / "rows.npy")
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


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            {"encoder": {"name": "vgg19", "weights": "b" * 64}},
            "was made with encoder.weights 'aaaaaaaaaaaa', not 'bbbbbbbbbbbb'",
        ),
        ({"mirrored": True}, "was made with mirrored False, not True"),
        ({"images": IMAGES[::-1]}, "holds other images"),
    ],
)
def test_a_store_with_another_record_is_refused(
    tmp_path: Path, change: dict[str, Any], difference: str
) -> None:
    fill(tmp_path)
    wanted = RECORD.replace(**change)
    for open_store in (FeatureStore, StoreWriter, create_store):
        with pytest.raises(UserError) as caught:
            open_store(tmp_path, wanted)
        assert str(caught.value) == (
            f"feature store {tmp_path} {difference}; set another features.folder or delete it"
        )
    assert_whole(tmp_path)


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"feature store record .*record\.json does not exist"):
        FeatureStore(tmp_path)
    fill(tmp_path)
    store, path = FeatureStore(tmp_path), tmp_path / "rows.npy"
    for damage in ("cut", "other", "gone"):
        if damage == "cut":
            os.truncate(path, path.stat().st_size - 2)
        elif damage == "other":
            numpy.save(path, numpy.zeros((20, 4, 3), numpy.float16))
        else:
            path.unlink()
        for use in (lambda: FeatureStore(tmp_path), lambda: store.read([8, 9])):
            with pytest.raises(UserError, match=r"damaged: rows\.npy is not whole; delete the sto"):
                use()
    (tmp_path / "record.json").write_text(json.dumps({**to_mapping(RECORD), "images": [1]}))
    with pytest.raises(UserError, match=r"record\.json: images.* should be text"):
        StoreWriter(tmp_path, RECORD)


def test_photos_that_could_not_be_read_are_remembered(tmp_path: Path) -> None:
    for rows in (range(10), range(10, 20)):  # By two runs.
        with StoreWriter(tmp_path, RECORD) as writer:
            writer.write(rows, vectors(rows), {3, 15})
            with pytest.raises(ValueError, match=r"vectors are \(1, 1, 4\), not \(1, 3, 4\)"):
                writer.write([0], torch.zeros(1, 1, 4))
    assert FeatureStore(tmp_path).unreadable == {3, 15}


@pytest.mark.parametrize("error", [RuntimeError("bad photo"), KeyboardInterrupt()])
@pytest.mark.parametrize("stop_at", [0, 6, 11])
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
    assert_whole(tmp_path)


def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    done = [2, 3, 9]
    with StoreWriter(tmp_path, RECORD, 1, 2) as writer:
        writer.write(done, vectors(done))
    found = [fill(tmp_path, rank, 3) for rank in range(3)]
    assert found == [[0, 1, 4, 5], [6, 7, 8, 10, 11], [12, 13, 14, 15, 16, 17, 18, 19]]
    assert read_states(tmp_path, 20).all()
    assert_whole(tmp_path)


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=479)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UserError, match="takes 480 bytes, and the disk has 479 left"):
        create_store(tmp_path, RECORD)
    monkeypatch.undo()

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
    assert_whole(tmp_path)


def test_marks_without_a_record_are_not_taken_for_this_store(tmp_path: Path) -> None:
    fill(tmp_path, encode=lambda rows: torch.zeros(len(rows), *SHAPE))
    (tmp_path / "record.json").unlink()
    assert fill(tmp_path) == list(range(20))
    assert_whole(tmp_path)
