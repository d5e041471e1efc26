"""Annotation vectors of a set of photos, computed once and kept on disk.

A store is a folder: `annotations.bin`, (N, L, D) float16 in row order (200,704 bytes an image for
VGG at 224x224), and `index.json`, which says what they are. It is filled in place and can be
continued after a stop: rows count as done only once they are on disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.files import folder_lock, read_json, write_json

FORMAT = "captioner feature store 1"
_DATA, _INDEX = "annotations.bin", "index.json"


@dataclass(frozen=True)
class StoreKey:
    """What annotation vectors depend on besides the photos.

    encoder: fingerprint of the encoder's weights (`captioner.vision.weights.fingerprint`).
    preprocessing: fingerprint of the preprocessing (`Preprocessing.fingerprint`).
    """

    encoder: str
    preprocessing: str


class FeatureStore:
    """A finished store, opened for reading."""

    def __init__(self, folder: Path, key: StoreKey | None = None) -> None:
        """Open the store in `folder`.

        key: what the reader expects; a store made with another encoder or preprocessing is
        refused. Raises `UserError` for that, for an unfinished store and for a damaged one.
        """
        index = _read_index(folder)
        if key is not None:
            _check_key(folder, index, key)
        if index["done"] < len(index["images"]):
            raise UserError(
                f"feature store {folder} is unfinished: {index['done']} of "
                f"{len(index['images'])} images; run the extraction again to continue it"
            )
        self.folder = folder
        self.key = StoreKey(index["encoder"], index["preprocessing"])
        self.images: list[str] = index["images"]
        # Images whose rows hold nothing, with the reasons.
        self.unreadable: dict[str, str] = index["unreadable"]
        self.shape: tuple[int, int] = (index["shape"][0], index["shape"][1])
        self._rows = _open(folder, (len(self.images), *self.shape), "r")

    def __len__(self) -> int:
        return len(self.images)

    def read(self, rows: Sequence[int] | Tensor) -> Tensor:
        """Annotation vectors of the given rows: (B, L, D) float32."""
        picked = numpy.asarray(rows, dtype=numpy.int64)  # (B,)
        return torch.from_numpy(self._rows[picked]).float()  # (B, L, D)


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
) -> FeatureStore:
    """Fill a store, or continue one that was stopped, and open it.

    images: N names, one a row. shape: (L, D). encode: row numbers -> annotation vectors (B, L, D).
    progress: called with the number of rows done, at the start and after each batch.
    sync_every: rows between two moments at which work is made safe against a stop.
    unreadable: images, with reasons, whose rows hold nothing; `encode` adds to it as it goes, and
        it is kept in the index. Without it nothing may be unreadable.

    Raises `UserError` when the folder holds a store of other photos, another encoder or another
    preprocessing, when another process is filling it, when `batch_size` is below 1, and when the
    disk is full. Whatever `encode` raises passes through; what was
    done before it stays done.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    unreadable = {} if unreadable is None else unreadable
    if (folder / _INDEX).exists() and _stored(folder, images, shape, key)["done"] == len(images):
        store = FeatureStore(folder, key)
        unreadable.update(store.unreadable)
        if progress is not None:
            progress(len(images))
        return store
    with folder_lock(folder, "feature store"):
        if (folder / _INDEX).exists():
            index = _stored(folder, images, shape, key)
            done: int = index["done"]
            unreadable.update(index["unreadable"])
        else:
            done = 0
            _create(folder, len(images), shape)
            _write_index(folder, images, shape, key, 0, {})
        rows = _open(folder, (len(images), *shape), "r+")
        safe = done
        if progress is not None:
            progress(done)
        try:
            while done < len(images):
                batch = range(done, min(done + batch_size, len(images)))
                vectors = encode(batch)  # (B, L, D)
                expected = (len(batch), *shape)
                if vectors.shape != expected:
                    raise ValueError(f"encode gave {tuple(vectors.shape)}, not {expected}")
                rows[batch.start : batch.stop] = vectors.cpu().half().numpy()
                done = batch.stop
                if progress is not None:
                    progress(done)
                if done - safe >= sync_every:
                    rows.flush()
                    _write_index(folder, images, shape, key, done, unreadable)
                    safe = done
        finally:
            if done > safe:
                rows.flush()
                _write_index(folder, images, shape, key, done, unreadable)
    return FeatureStore(folder, key)


def _stored(
    folder: Path, images: Sequence[str], shape: tuple[int, int], key: StoreKey
) -> dict[str, Any]:
    """The index of a store of these very photos. Raises `UserError` where it is of others."""
    index = _read_index(folder)
    _check_key(folder, index, key)
    if index["images"] != list(images) or tuple(index["shape"]) != tuple(shape):
        raise UserError(
            f"feature store {folder} holds other images; give another folder or delete it"
        )
    return index


def _create(folder: Path, count: int, shape: tuple[int, int]) -> None:
    size = storage_bytes(count, shape)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _DATA).open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                # Claims the space now, so that a full disk is a sentence here, not a crash later.
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
            file.truncate(size)
    except OSError as error:
        with contextlib.suppress(OSError):  # What a full disk had room for is given back.
            (folder / _DATA).unlink()
        raise UserError(
            f"cannot make feature store {folder} of {size:,} bytes: {error.strerror or error}"
        ) from None


def _open(folder: Path, shape: tuple[int, int, int], mode: Any) -> Any:
    path = folder / _DATA
    size = storage_bytes(shape[0], shape[1:])
    if not path.is_file() or path.stat().st_size != size:
        raise UserError(f"feature store {folder} is damaged: {_DATA} should have {size:,} bytes")
    if size == 0:
        return numpy.empty(shape, numpy.float16)
    return numpy.memmap(path, numpy.float16, mode, shape=shape)


def _write_index(
    folder: Path,
    images: Sequence[str],
    shape: tuple[int, int],
    key: StoreKey,
    done: int,
    unreadable: dict[str, str],
) -> None:
    index = {
        "format": FORMAT,
        "encoder": key.encoder,
        "preprocessing": key.preprocessing,
        "shape": list(shape),
        "done": done,
        "unreadable": unreadable,
        "images": list(images),
    }
    write_json(folder / _INDEX, index, indent=None)


def _read_index(folder: Path) -> dict[str, Any]:
    index = read_json(folder / _INDEX, "feature store index")
    kinds = {"encoder": str, "preprocessing": str, "shape": list, "done": int, "images": list}
    kinds["unreadable"] = dict
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise UserError(f"{folder / _INDEX} is not the index of a feature store")
    for name, kind in kinds.items():
        if not isinstance(index.get(name), kind):
            raise UserError(f"{folder / _INDEX}: field {name!r} is missing or of the wrong type")
    shape, images = index["shape"], index["images"]
    if len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise UserError(f"{folder / _INDEX}: field 'shape' is not two whole numbers above 0")
    if not all(isinstance(image, str) for image in images):
        raise UserError(f"{folder / _INDEX}: field 'images' is not a list of names")
    if not 0 <= index["done"] <= len(images):
        raise UserError(f"{folder / _INDEX}: field 'done' is not between 0 and {len(images)}")
    return index


def _check_key(folder: Path, index: dict[str, Any], key: StoreKey) -> None:
    for name in ("encoder", "preprocessing"):
        stored, expected = index[name], getattr(key, name)
        if stored != expected:
            raise UserError(
                f"feature store {folder} was made with another {name} "
                f"({stored[:12]}, not {expected[:12]}); give another folder or delete it"
            )


def storage_bytes(count: int, shape: tuple[int, int]) -> int:
    """Bytes on disk of the annotation vectors of `count` images of shape (L, D)."""
    return count * shape[0] * shape[1] * 2
