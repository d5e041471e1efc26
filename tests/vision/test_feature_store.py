"""The feature store: every row right, whatever stopped the work; nothing foreign is taken in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.files import folder_lock
from captioner.vision import feature_store
from captioner.vision.feature_store import FeatureStore, StoreKey, build_store, storage_bytes

KEY = StoreKey("encoder" * 5, "preprocessing" * 5)
SHAPE = (3, 4)
IMAGES = [f"{number}.jpg" for number in range(20)]


def vectors(rows: Sequence[int]) -> Tensor:
    """What the encoder gives for these rows: numbers that float16 holds exactly."""
    offsets = torch.arange(12.0).view(1, *SHAPE) / 16
    return torch.tensor([float(row) for row in rows]).view(-1, 1, 1) + offsets


class Encoder:
    """Encodes rows and keeps a list of them; stops before a given one."""

    def __init__(self, stop_at: int | None = None, error: BaseException | None = None) -> None:
        self.rows: list[int] = []
        self.stop_at, self.error = stop_at, error

    def __call__(self, rows: Sequence[int]) -> Tensor:
        if self.error is not None and self.stop_at in rows:
            raise self.error
        self.rows += rows
        return vectors(rows)


def build(
    folder: Path, encode: Any, images: Sequence[str] = IMAGES, **options: Any
) -> FeatureStore:
    settings = {"batch_size": 2, "sync_every": 6, **options}
    return build_store(folder, images, SHAPE, settings.pop("key", KEY), encode, **settings)


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
    assert (tmp_path / "annotations.bin").stat().st_size == 3 * 200_704
    assert storage_bytes(3, (196, 512)) == 3 * 200_704
    assert store.read([2]).shape == (1, 196, 512)


def test_rows_are_float16_in_order(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    raw = numpy.fromfile(tmp_path / "annotations.bin", numpy.float16).reshape(20, *SHAPE)
    assert numpy.array_equal(raw, vectors(range(20)).numpy())


def test_progress_counts_from_what_was_done(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        build(tmp_path, Encoder(7, RuntimeError()))
    seen: list[int] = []
    build(tmp_path, Encoder(), batch_size=5, progress=seen.append)
    assert seen == [6, 11, 16, 20]


def test_a_finished_store_is_opened_and_nothing_encoded(tmp_path: Path) -> None:
    build(tmp_path, Encoder())
    again = Encoder()
    assert torch.equal(build(tmp_path, again).read([3]), vectors([3]))
    assert again.rows == []


def test_a_store_of_no_images_is_possible(tmp_path: Path) -> None:
    store = build(tmp_path, Encoder(), images=[])
    assert len(store) == 0
    assert store.read([]).shape == (0, *SHAPE)


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


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from captioner.vision.feature_store import StoreKey, build_store

folder, stop_at = Path(sys.argv[1]), int(sys.argv[2])
encoded = open(sys.argv[3], "a")

def encode(rows):
    if stop_at in rows:
        os.kill(os.getpid(), signal.SIGKILL)
    encoded.write("".join(f"{row}\\n" for row in rows))
    encoded.flush()
    offsets = torch.arange(12.0).view(1, 3, 4) / 16
    return torch.tensor([float(row) for row in rows]).view(-1, 1, 1) + offsets

images = [f"{number}.jpg" for number in range(20)]
key = StoreKey("encoder" * 5, "preprocessing" * 5)
build_store(folder, images, (3, 4), key, encode, batch_size=2, sync_every=6)
"""


def test_a_killed_extraction_loses_only_what_was_not_safe(tmp_path: Path) -> None:
    folder, encoded = tmp_path / "store", tmp_path / "encoded.txt"
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), "11", str(encoded)], capture_output=True
    )
    assert run.returncode == -signal.SIGKILL, run.stderr.decode()
    before = [int(line) for line in encoded.read_text().split()]
    assert before == list(range(10))
    with pytest.raises(UserError, match="unfinished: 6 of 20"):
        FeatureStore(folder)
    second = Encoder()
    store = build(folder, second)
    assert second.rows == list(range(6, 20))  # rows 6 to 9 were not on disk for sure
    assert torch.equal(store.read(range(20)), vectors(range(20)))


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
    data = tmp_path / "annotations.bin"
    data.write_bytes(data.read_bytes()[:-2])
    for open_store in (lambda: FeatureStore(tmp_path), lambda: build(tmp_path, Encoder())):
        with pytest.raises(UserError, match=r"is damaged: annotations\.bin should have 480 bytes"):
            open_store()
    data.unlink()
    with pytest.raises(UserError, match="is damaged"):
        FeatureStore(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "other"}, "is not the index of a feature store"),
        ({"done": "20"}, "field 'done' is missing or of the wrong type"),
        ({"done": 21}, "field 'done' is not between 0 and 20"),
        ({"done": -1}, "field 'done' is not between 0 and 20"),
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


def test_a_missing_or_damaged_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"feature store index .*index\.json does not exist"):
        FeatureStore(tmp_path)
    (tmp_path / "index.json").write_text('{"format": "capt')
    with pytest.raises(UserError, match=r"feature store index .* is not valid JSON"):
        build(tmp_path, Encoder())


def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feature_store.os, "posix_fallocate", full, raising=False)
    sentence = "cannot make feature store .* of 480 bytes: No space left on device"
    with pytest.raises(UserError, match=sentence):
        build(tmp_path, Encoder())
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert len(build(tmp_path, Encoder())) == 20


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot make feature store"):
        build(tmp_path / "file" / "store", Encoder())


def test_vectors_of_another_shape_are_not_spread_over_the_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"encode gave \(2, 1, 4\), not \(2, 3, 4\)"):
        build(tmp_path, lambda rows: torch.zeros(len(rows), 1, 4))
    assert torch.equal(build(tmp_path, Encoder()).read(range(20)), vectors(range(20)))


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


LOCKED = """
import sys
from pathlib import Path
import torch
from captioner.vision.feature_store import StoreKey, build_store

def encode(rows):
    print("filling", flush=True)
    sys.stdin.read()  # until the test has seen enough
    return torch.zeros(len(rows), 3, 4)

images = [f"{number}.jpg" for number in range(20)]
key = StoreKey("encoder" * 5, "preprocessing" * 5)
build_store(Path(sys.argv[1]), images, (3, 4), key, encode, batch_size=20)
"""


def test_two_processes_do_not_fill_a_store_at_once(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOCKED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"filling\n"
        unused = Encoder()
        with pytest.raises(UserError, match=f"feature store {tmp_path} is in use by another"):
            build(tmp_path, unused)
        assert unused.rows == []
        other.kill()
    # Killed, it has let go.
    assert torch.equal(build(tmp_path, Encoder()).read(range(20)), vectors(range(20)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["annotations.bin", "index.json"]


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
