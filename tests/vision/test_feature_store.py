"""The feature store: every row right, wherever it lies; nothing foreign is taken in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from store_samples import IMAGES, KEY, SHAPE, Encoder, build, vectors

from captioner.errors import UserError
from captioner.files import folder_lock
from captioner.vision.feature_store import FeatureStore, StoreKey, build_store, storage_bytes


def test_rows_come_back_in_any_order(tmp_path: Path) -> None:
    store = build(tmp_path / "store", Encoder())
    rows = [7, 0, 19, 7]
    assert torch.equal(store.read(rows), vectors(rows))
    assert torch.equal(store.read(torch.tensor(rows)), vectors(rows))
    assert store.read(rows).dtype == torch.float32
    assert len(store) == 20
    assert store.shape == SHAPE
    assert store.images[13] == "13.jpg"
    assert store.key == KEY


def test_an_image_takes_200704_bytes(tmp_path: Path) -> None:
    store = build_store(
        tmp_path, ["a", "b", "c"], (196, 512), KEY, lambda rows: torch.ones(len(rows), 196, 512)
    )
    assert (tmp_path / "shard-00000.bin").stat().st_size == 3 * 200_704
    assert storage_bytes(3, (196, 512)) == 3 * 200_704
    assert store.read([2]).shape == (1, 196, 512)


def test_rows_are_float16_in_order(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    paths = sorted(tmp_path.glob("*.bin"))
    assert [path.name for path in paths] == [f"shard-0000{number}.bin" for number in range(3)]
    raw = [numpy.fromfile(path, numpy.float16).reshape(-1, *SHAPE) for path in paths]
    assert [len(rows) for rows in raw] == [8, 8, 4]
    assert numpy.array_equal(numpy.concatenate(raw), vectors(range(20)).numpy())


def test_progress_counts_from_what_was_done(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        build(tmp_path, Encoder(7, RuntimeError()))
    seen: list[int] = []
    build(tmp_path, Encoder(), batch_size=5, progress=seen.append)
    assert seen == [6, 8, 13, 16, 20]  # A batch does not reach over the end of a shard.


def test_a_finished_store_is_opened_and_nothing_encoded(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    again = Encoder()
    assert torch.equal(build(tmp_path, again).read([3]), vectors([3]))
    assert again.rows == []


def test_a_store_of_no_images_is_possible(tmp_path: Path) -> None:
    store = build(tmp_path, Encoder(), images=[])
    assert len(store) == 0
    assert store.read([]).shape == (0, *SHAPE)


@pytest.mark.parametrize("stop_at", [None, 11])
@pytest.mark.parametrize(
    ("key", "what"),
    [
        (StoreKey("another", KEY.preprocessing), "encoder"),
        (StoreKey(KEY.encoder, "another"), "preprocessing"),
    ],
)
def test_another_encoder_or_preprocessing_is_refused(
    tmp_path: Path, key: StoreKey, what: str, stop_at: int | None
) -> None:
    if stop_at is None:
        build(tmp_path, Encoder())
    else:
        with pytest.raises(RuntimeError):
            build(tmp_path, Encoder(stop_at, RuntimeError()))
    sentence = rf"feature store {tmp_path} was made with another {what} \({what[:6]}.*not another"
    with pytest.raises(UserError, match=sentence):
        FeatureStore(tmp_path, key)
    unused = Encoder()
    with pytest.raises(UserError, match=sentence):
        build(tmp_path, unused, key=key)
    assert unused.rows == []


@pytest.mark.parametrize("images", [IMAGES[:-1], [*IMAGES, "20.jpg"], IMAGES[::-1], []])
def test_a_store_of_other_images_is_refused(tmp_path: Path, images: list[str]) -> None:
    build(tmp_path, Encoder())
    with pytest.raises(UserError, match=f"feature store {tmp_path} holds other images"):
        build(tmp_path, Encoder(), images=images)
    assert torch.equal(FeatureStore(tmp_path, KEY).read([19]), vectors([19]))


def test_a_store_of_another_shape_is_refused(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    with pytest.raises(UserError, match="holds other images"):
        build_store(tmp_path, IMAGES, (4, 3), KEY, Encoder())


def test_a_truncated_data_file_is_refused(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    data = tmp_path / "shard-00001.bin"
    data.write_bytes(data.read_bytes()[:-2])
    sentence = r"is damaged: shard-00001\.bin should have 192 bytes; delete shard-00001\.json and"
    for open_store in (lambda: FeatureStore(tmp_path), lambda: build(tmp_path, Encoder())):
        with pytest.raises(UserError, match=sentence):
            open_store()
    data.unlink()
    with pytest.raises(UserError, match=sentence):
        FeatureStore(tmp_path)
    # As the sentence says; the other shards are kept.
    (tmp_path / "shard-00001.json").unlink()
    again = Encoder()
    assert torch.equal(build(tmp_path, again).read(range(20)), vectors(range(20)))
    assert again.rows == list(range(8, 16))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "other"}, "is not the index of a feature store"),
        ({"rows_per_shard": "8"}, "field 'rows_per_shard' is not a whole number above 0"),
        ({"rows_per_shard": 0}, "field 'rows_per_shard' is not a whole number above 0"),
        ({"images": None}, "field 'images' is missing or of the wrong type"),
        ({"images": [1] * 20}, "field 'images' is not a list of names"),
        ({"shape": [3]}, "field 'shape' is not two whole numbers above 0"),
        ({"shape": [3, "4"]}, "field 'shape' is not two whole numbers above 0"),
        ({"shape": [3, -4]}, "field 'shape' is not two whole numbers above 0"),
        ({"encoder": 5}, "field 'encoder' is missing or of the wrong type"),
    ],
)
def test_an_ill_formed_index_is_named(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    build(tmp_path, Encoder())
    path = tmp_path / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UserError, match=rf"index\.json.* {sentence}|index\.json {sentence}"):
        FeatureStore(tmp_path)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"done": "8", "unreadable": {}}, "field 'done' is missing or of the wrong type"),
        ({"done": 9, "unreadable": {}}, "field 'done' is not between 0 and 8"),
        ({"done": -1, "unreadable": {}}, "field 'done' is not between 0 and 8"),
        ({"done": 8}, "field 'unreadable' is missing or of the wrong type"),
        ({"done": 8, "unreadable": {"1.jpg": 3}}, "field 'unreadable' does not give reasons"),
        ([], "field 'done' is missing"),
    ],
)
def test_an_ill_formed_record_is_named(tmp_path: Path, record: object, sentence: str) -> None:
    build(tmp_path, Encoder())
    (tmp_path / "shard-00001.json").write_text(json.dumps(record))
    for open_store in (lambda: FeatureStore(tmp_path), lambda: build(tmp_path, Encoder())):
        with pytest.raises(UserError, match=rf"shard-00001\.json: {sentence}"):
            open_store()


def test_a_missing_or_damaged_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"feature store index .*index\.json does not exist"):
        FeatureStore(tmp_path)
    (tmp_path / "index.json").write_text('{"format": "capt')
    with pytest.raises(UserError, match=r"feature store index .* is not valid JSON"):
        build(tmp_path, Encoder())


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot make feature store"):
        build(tmp_path / "file" / "store", Encoder())


def test_a_finished_store_needs_no_lock(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    with folder_lock(tmp_path, "feature store"):
        found: dict[str, str] = {}
        assert len(build(tmp_path, Encoder(), unreadable=found)) == 20


def test_a_batch_size_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="batch size 0 is not at least 1"):
        build(tmp_path, Encoder(), batch_size=0)


def test_a_store_of_the_first_format_stays_readable(tmp_path: Path) -> None:
    """The very bytes of an index as it was first written: were it refused, hours would be lost."""
    index = (
        '{"format": "captioner feature store 1", "encoder": "abc", "preprocessing": "def", '
        '"shape": [1, 2], "done": 2, "unreadable": {"b.jpg": "cut off"}, '
        '"images": ["a.jpg", "b.jpg"]}\n'
    )
    (tmp_path / "index.json").write_text(index)
    numpy.array([[[1, 2]], [[3, 4]]], numpy.float16).tofile(tmp_path / "annotations.bin")
    store = FeatureStore(tmp_path, StoreKey("abc", "def"))
    assert store.read([1, 0]).tolist() == [[[3.0, 4.0]], [[1.0, 2.0]]]
    assert store.unreadable == {"b.jpg": "cut off"}
    unused = Encoder()
    images = ["a.jpg", "b.jpg"]
    again = build_store(tmp_path, images, (1, 2), StoreKey("abc", "def"), unused)
    assert again.read([0]).tolist() == [[[1.0, 2.0]]]
    assert unused.rows == []
    # One that was never finished is not gone on with.
    (tmp_path / "index.json").write_text(index.replace('"done": 2', '"done": 1'))
    with pytest.raises(UserError, match="unfinished: 1 of 2 images"):
        FeatureStore(tmp_path)
    with pytest.raises(UserError, match=r"unfinished, and of the first format.*or delete it"):
        build_store(tmp_path, images, (1, 2), StoreKey("abc", "def"), unused)
