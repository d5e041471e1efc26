"""The feature store: every row once and right, whatever stops its writers; nothing foreign read."""

import json
import os
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from refusals import refuses
from torch import Tensor

from captioner.schema import to_mapping
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter

SHAPE = (3, 4)
IMAGES = [f"{number}.jpg" for number in range(20)]
ENCODER = {"name": "vgg19", "weights": "a" * 64}
RECORD = StoreRecord(encoder=ENCODER, preprocessing={"size": 32}, images=IMAGES, shape=SHAPE)


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
    assert torch.equal(store.read(torch.tensor(rows)), vectors(rows))
    assert torch.equal(store.read(rows, torch.float16), vectors(rows).half())
    assert torch.equal(pickle.loads(pickle.dumps(store)).read(rows), vectors(rows))
    assert store.record == RECORD


def test_a_store_with_another_record_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    other = RECORD.replace(encoder={"name": "vgg16", "weights": "b"}, mirrored=True)
    differences = "encoder.name, encoder.weights, mirrored; set another features.folder or delete"
    for open_store in (FeatureStore, StoreWriter):
        refuses(rf"^feature store .* this run in {differences} it$", open_store, tmp_path, other)
    assert_whole(tmp_path)


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    refuses(r"feature store record .*record\.json does not exist", FeatureStore, tmp_path)
    fill(tmp_path)
    store, path = FeatureStore(tmp_path), tmp_path / "rows.npy"
    for content in (path.read_bytes()[:-2], b""):
        path.write_bytes(content)
        refuses(r"damaged: rows\.npy is not whole; delete the store", FeatureStore, tmp_path)
        refuses(r"damaged: rows\.npy is not whole", store.read, [8, 9])
    (tmp_path / "record.json").write_text(json.dumps({**to_mapping(RECORD), "images": [1]}))
    refuses(r"record\.json: images.* should be", StoreWriter, tmp_path, RECORD)


@pytest.mark.parametrize("stop_at", [0, 6, 11])
def test_a_stopped_extraction_goes_on_where_it_was(tmp_path: Path, stop_at: int) -> None:
    def encode(rows: Sequence[int]) -> Tensor:
        if stop_at in rows:
            raise KeyboardInterrupt
        return vectors(rows)

    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path, encode=encode)
    before = 2 * (stop_at // 2)
    refuses(f"unfinished: {before} of 20 rows", FeatureStore, tmp_path, RECORD)
    assert fill(tmp_path) == list(range(before, 20))
    assert_whole(tmp_path)


def test_another_number_of_processes_goes_on(tmp_path: Path) -> None:
    done = [2, 3, 9]
    with StoreWriter(tmp_path, RECORD, 1, 2) as writer:
        writer.write(done, vectors(done), unreadable={3})
    found = [fill(tmp_path, rank, 3) for rank in range(3)]
    assert found == [[0, 1, 4, 5], [6, 7, 8, 10, 11], [12, 13, 14, 15, 16, 17, 18, 19]]
    assert_whole(tmp_path)
    assert FeatureStore(tmp_path).unreadable == {3}


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=479)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    refuses("takes 480 bytes, and the disk has 479", StoreWriter, tmp_path, RECORD)
    monkeypatch.undo()

    writer = StoreWriter(tmp_path, RECORD)
    writer.write([6, 7], vectors([6, 7]))
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=error))
    refuses(r"cannot write feature store .*: No space left", writer.flush)
    monkeypatch.undo()
    assert fill(tmp_path) == list(range(20))
    assert_whole(tmp_path)


def test_rows_of_changed_photos_are_written_again(tmp_path: Path) -> None:
    """Also those mirrored; temporary files of a killed run go."""
    (tmp_path / ".captioner-0123.npy").write_bytes(b"")
    record, states = RECORD.replace(mirrored=True), [(number, 1) for number in range(20)]

    def rows_written(states: list[tuple[int, int]]) -> tuple[list[str], list[int]]:
        with StoreWriter(tmp_path, record) as writer:
            changed, batches = writer.forget_changed(states), writer.missing(4)
            for rows in batches:
                writer.write(rows, vectors(rows))
        return changed, [row for rows in batches for row in rows]

    assert rows_written(states) == ([], list(range(40)))
    assert not list(tmp_path.glob(".captioner-*"))
    (tmp_path / ".lock").unlink()
    assert rows_written(states) == ([], [])
    assert not (tmp_path / ".lock").exists()  # A finished store may be in a folder to read only.
    states[3], states[17] = (3, 2), (5, 1)
    assert rows_written(states) == (["3.jpg", "17.jpg"], [3, 17, 23, 37])
    assert rows_written(states) == ([], [])
