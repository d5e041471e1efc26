"""What a feature store is: its index, its shards, and how far each of them is.

A store is a folder:

- `index.json`, written once: the images in row order, the shape of their annotation vectors, the
  fingerprints of what made them, and how many rows a shard has;
- `shard-00000.bin`, `shard-00001.bin`, ...: the rows, (N, L, D) float16, so many to a file;
- `shard-00000.json`, ...: how many rows of that shard are done, and which photos among them
  could not be read. A shard without such a record has none done.

The first format is read as well: all rows in one `annotations.bin`, the record in `index.json`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioner.errors import UserError
from captioner.files import read_json, write_json

FORMAT = "captioner feature store 2"
ONE_FILE_FORMAT = "captioner feature store 1"
_INDEX = "index.json"
_SHARDS_WANTED, _FEWEST_ROWS, _MOST_ROWS = 32, 256, 2048


@dataclass(frozen=True)
class StoreKey:
    """What annotation vectors depend on besides the photos.

    encoder: fingerprint of the encoder's weights (`captioner.vision.weights.fingerprint`).
    preprocessing: fingerprint of the preprocessing (`Preprocessing.fingerprint`).
    """

    encoder: str
    preprocessing: str


@dataclass(frozen=True)
class Record:
    """How far a shard is: its first `done` rows are on disk.

    unreadable: images among these, with reasons, whose rows hold nothing.
    """

    done: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shard:
    """A file with the rows `first` to `first + count` of a store."""

    data: Path
    first: int
    count: int

    def read_record(self) -> Record:
        """How far it is. Raises `UserError` where the record is damaged."""
        path = self.data.with_suffix(".json")
        if not path.exists():
            return Record()
        content = read_json(path, "feature store record")
        return _record(path, content if isinstance(content, dict) else {}, self.count)

    def write_record(self, record: Record) -> None:
        """Say how far it is, atomically; the rows must be on disk before."""
        content = {"done": record.done, "unreadable": record.unreadable}
        write_json(self.data.with_suffix(".json"), content, indent=None)


@dataclass(frozen=True)
class StoreIndex:
    """What `index.json` says.

    folder: where it lies. key: what made the rows. shape: (L, D). images: N names, one a row.
    rows_per_shard: rows of every shard but the last, which has what is left.
    one_file: in the first format, how far the store is; None in a store of shards.
    """

    folder: Path
    key: StoreKey
    shape: tuple[int, int]
    images: list[str]
    rows_per_shard: int
    one_file: Record | None = None

    @property
    def shards(self) -> list[Shard]:
        """The files that hold the rows, in row order."""
        count = len(self.images)
        if self.one_file is not None:
            return [Shard(self.folder / "annotations.bin", 0, count)]
        most = self.rows_per_shard
        return [
            Shard(self.folder / f"shard-{number:05}.bin", first, min(most, count - first))
            for number, first in enumerate(range(0, count, most))
        ]

    def read_records(self) -> list[Record]:
        """How far each of the `shards` is. Raises `UserError` where a record is damaged."""
        if self.one_file is not None:
            return [self.one_file]
        return [shard.read_record() for shard in self.shards]

    def check_key(self, key: StoreKey) -> None:
        """Raise `UserError` where the store was made with another encoder or preprocessing."""
        for name in ("encoder", "preprocessing"):
            stored, expected = getattr(self.key, name), getattr(key, name)
            if stored != expected:
                raise UserError(
                    f"feature store {self.folder} was made with another {name} "
                    f"({stored[:12]}, not {expected[:12]}); give another folder or delete it"
                )

    def check_same(self, images: Sequence[str], shape: tuple[int, int], key: StoreKey) -> None:
        """Raise `UserError` where the store is not of these very images, shape and key."""
        self.check_key(key)
        if self.images != list(images) or self.shape != tuple(shape):
            raise UserError(
                f"feature store {self.folder} holds other images; give another folder or delete it"
            )

    def check_size(self, shard: Shard) -> None:
        """Raise `UserError` where the file of a shard is missing or of another size."""
        expected = storage_bytes(shard.count, self.shape)
        try:
            size = os.stat(shard.data).st_size
        except OSError:
            size = -1
        if size != expected:
            advice = ""
            if self.one_file is None:
                record = shard.data.with_suffix(".json").name
                advice = f"; delete {record} and run the extraction again to make its rows anew"
            raise UserError(
                f"feature store {self.folder} is damaged: {shard.data.name} should have "
                f"{expected:,} bytes{advice}"
            )

    def write(self) -> None:
        """Write `index.json`, atomically."""
        content = {
            "format": FORMAT,
            "encoder": self.key.encoder,
            "preprocessing": self.key.preprocessing,
            "shape": list(self.shape),
            "rows_per_shard": self.rows_per_shard,
            "images": self.images,
        }
        write_json(self.folder / _INDEX, content, indent=None)


def index_exists(folder: Path) -> bool:
    """Whether there is a store, finished or not, in the folder."""
    return (folder / _INDEX).exists()


def read_index(folder: Path) -> StoreIndex:
    """The index of the store in `folder`, of either format. Raises `UserError` if ill-formed."""
    path = folder / _INDEX
    index = read_json(path, "feature store index")
    known = index.get("format") if isinstance(index, dict) else None
    if known not in (FORMAT, ONE_FILE_FORMAT):
        raise UserError(f"{path} is not the index of a feature store")
    for name, kind in (("encoder", str), ("preprocessing", str), ("shape", list), ("images", list)):
        _check_kind(path, index, name, kind)
    shape, images = index["shape"], index["images"]
    if len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise UserError(f"{path}: field 'shape' is not two whole numbers above 0")
    if not all(isinstance(image, str) for image in images):
        raise UserError(f"{path}: field 'images' is not a list of names")
    one_file = _record(path, index, len(images)) if known == ONE_FILE_FORMAT else None
    rows = len(images) if one_file else index.get("rows_per_shard")
    if one_file is None and (type(rows) is not int or rows < 1):
        raise UserError(f"{path}: field 'rows_per_shard' is not a whole number above 0")
    key = StoreKey(index["encoder"], index["preprocessing"])
    return StoreIndex(folder, key, (shape[0], shape[1]), images, rows, one_file)


def default_rows_per_shard(count: int) -> int:
    """Rows that a shard of a store of `count` images has unless said otherwise.

    Enough shards for many processes to share the work evenly, none larger than 2,048 rows (411 MB
    for a VGG at 224x224) and none smaller than 256.
    """
    return min(_MOST_ROWS, max(_FEWEST_ROWS, -(-count // _SHARDS_WANTED)))


def storage_bytes(count: int, shape: tuple[int, int]) -> int:
    """Bytes on disk of the annotation vectors of `count` images of shape (L, D)."""
    return count * shape[0] * shape[1] * 2


def _record(path: Path, content: dict[str, Any], count: int) -> Record:
    """The record in a JSON file, checked."""
    _check_kind(path, content, "done", int)
    _check_kind(path, content, "unreadable", dict)
    if not 0 <= content["done"] <= count:
        raise UserError(f"{path}: field 'done' is not between 0 and {count}")
    if not all(isinstance(reason, str) for reason in content["unreadable"].values()):
        raise UserError(f"{path}: field 'unreadable' does not give reasons in words")
    return Record(content["done"], content["unreadable"])


def _check_kind(path: Path, content: dict[str, Any], name: str, kind: type) -> None:
    if type(content.get(name)) is not kind:
        raise UserError(f"{path}: field {name!r} is missing or of the wrong type")
