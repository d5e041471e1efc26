"""The weights of a model folder, read without torch, and their places in the file."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from captioner.errors import UserError

Array = np.ndarray[Any, Any]


class StoredWeights:
    """A safetensors file: a header of N bytes behind its length (8 bytes), then the tensors.

    Refuses a file whose tensors have another digest than its header says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise UserError(f"model weights {path} do not exist")
        try:
            with safe_open(path, framework="numpy") as file:
                self.digest = (file.metadata() or {}).get("sha256", "")
                names = list(file.keys())
                self.arrays: dict[str, Array] = {name: file.get_tensor(name) for name in names}
        except (SafetensorError, OSError, TypeError) as error:
            raise UserError(f"model weights {path} cannot be read ({error})") from None
        if self.digest and self.digest != self._computed_digest():
            problem = "are damaged (their digest is another); copy the model again"
            raise UserError(f"model weights {path} {problem}")

    def _computed_digest(self) -> str:
        """SHA-256 of names, types, shapes and values, as `captioner.weight_files` writes it."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(f"{name} torch.{array.dtype} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def get(self, name: str) -> Array | None:
        """A tensor; None if there is none of this name."""
        return self.arrays.get(name)

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """The offset and the length of each tensor, in bytes of the file."""
        with self.path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        places = {}
        for name in self.arrays:
            begin, end = header[name]["data_offsets"]
            places[name] = 8 + size + begin, end - begin
        return places

    def reference(self, name: str, called: str) -> Any:
        """An ONNX tensor whose values are those of a float16 tensor of the file.

        called: its name in the graph.
        """
        from onnx import TensorProto

        offset, length = self._places[name]
        tensor = TensorProto(name=called, data_type=TensorProto.FLOAT16)
        tensor.dims.extend(self.arrays[name].shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.path.name), ("offset", offset), ("length", length)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        return tensor
