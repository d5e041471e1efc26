"""The weights of a model folder, read without torch, and their places in the file."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from captioner.errors import UserError
from captioner.files import LARGEST_CONFIG
from captioner.memory_limits import check_memory

Array = np.ndarray[Any, Any]

_TYPES = {"F16": "float16", "F32": "float32", "F64": "float64", "I16": "int16", "I64": "int64"}


class _Place(NamedTuple):
    """Where a tensor lies in the file, in bytes, and its type and shape."""

    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


class StoredWeights:
    """A safetensors file: the length of the header (8 bytes), the header, the tensors.

    Refuses a file whose tensors have another digest than its header says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise UserError(f"model weights {path} do not exist")
        check_memory(os.path.getsize(path), f"weights file {path}")
        self._content = path.read_bytes()
        try:
            size = int.from_bytes(self._content[:8], "little")
            header = json.loads(self._content[8 : 8 + min(size, LARGEST_CONFIG)])
            self.digest = header.pop("__metadata__", {}).get("sha256", "")
            self._places = {
                name: _place(8 + size, len(self._content), **entry)
                for name, entry in header.items()
            }
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"model weights {path} cannot be read ({error})") from None
        if self.digest != self._computed_digest():
            problem = "are damaged (their digest is another); copy the model again"
            raise UserError(f"model weights {path} {problem}")

    def get(self, name: str) -> Array | None:
        """A tensor; None if there is none of this name."""
        if name not in self._places:
            return None
        place = self._places[name]
        numbers = np.frombuffer(self._bytes(place), _TYPES[place.dtype])
        return numbers.reshape(place.shape)

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._places)

    def _bytes(self, place: _Place) -> memoryview:
        return memoryview(self._content)[place.offset : place.offset + place.length]

    def _computed_digest(self) -> str:
        """SHA-256 of names, types, shapes and values, as `captioner.weight_files` writes it."""
        digest = hashlib.sha256()
        for name, place in sorted(self._places.items()):
            digest.update(f"{name} torch.{_TYPES[place.dtype]} {place.shape} ".encode())
            digest.update(self._bytes(place))
        return digest.hexdigest()

    def reference(self, name: str, called: str) -> Any:
        """An ONNX tensor whose values are those of a float16 tensor of the file.

        called: its name in the graph.
        """
        from onnx import TensorProto

        place = self._places[name]
        tensor = TensorProto(name=called, data_type=TensorProto.FLOAT16)
        tensor.dims.extend(place.shape)
        tensor.data_location = TensorProto.EXTERNAL
        facts = {"location": self.path.name, "offset": place.offset, "length": place.length}
        for key, value in facts.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        return tensor


def _place(first: int, size: int, dtype: str, shape: list[int], data_offsets: list[int]) -> _Place:
    """The place of a tensor whose offsets count from `first` in a file of so many bytes."""
    begin, end = data_offsets
    if dtype not in _TYPES or not first <= first + begin <= first + end <= size:
        raise ValueError(f"a tensor of type {dtype} at {begin} to {end}")
    return _Place(first + begin, end - begin, dtype, tuple(shape))
