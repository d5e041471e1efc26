"""Weights in safetensors files, which hold tensors and nothing else; imports no torch."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, NonNegativeInt, ValidationError
from safetensors import safe_open

from captioner.errors import UserError, refuse_errors
from captioner.files import LARGEST_CONFIG, JsonObject, atomic_path, opened_file
from captioner.memory_limits import check_memory
from captioner.schema import Config

DIGEST = "sha256"  # In the header of a file: the digest of its tensors.


_TYPES = {
    **{"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "BOOL": "bool"},
    **{"I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U8": "uint8"},
}
"""Types by their names in files."""

_NAMES = {dtype: name for name, dtype in _TYPES.items()}


class StoredTensor(NamedTuple):
    """A tensor of a weights file: its bytes are those from `begin` to `end`."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class _TensorEntry(Config):
    """A tensor in the header of a weights file; its offsets count from the header's end."""

    dtype: str
    shape: tuple[NonNegativeInt, ...]
    data_offsets: tuple[NonNegativeInt, NonNegativeInt]


class _WeightsHeader(Config):
    """The header of a weights file: texts, and the tensors by name."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, _TensorEntry]
    texts: dict[str, str] | None = Field(None, alias="__metadata__")


def weights_header(path: Path) -> tuple[str, dict[str, StoredTensor]]:
    """Read the header of a safetensors file: the digest of its tensors, if any, and their places.

    The file has the length of the header in 8 bytes, the header as JSON, and the tensors.
    """
    with opened_file(path, "model weights") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(min(length, LARGEST_CONFIG))
    try:
        header = _WeightsHeader.model_validate_json(text)
    except ValidationError:
        problem = "cannot be read (they are damaged, or no safetensors); copy the model again"
        raise UserError(f"model weights {path} {problem}") from None
    tensors = {}
    for name, entry in header.__pydantic_extra__.items():
        begin, end = (8 + length + offset for offset in entry.data_offsets)
        tensors[name] = StoredTensor(_TYPES.get(entry.dtype, entry.dtype), entry.shape, begin, end)
    return (header.texts or {}).get(DIGEST, ""), tensors


def stored_tensors(path: Path, framework: Literal["np", "pt"]) -> dict[str, Any]:
    """The tensors of a file, by name: arrays of NumPy, which has no bfloat16, or of torch."""
    with opened_file(path, "model weights"):  # Refuses what is no file, in a sentence.
        check_memory(os.path.getsize(path), f"weights file {path}")
    with refuse_errors(f"model weights {path} cannot be read"), safe_open(path, framework) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write_weights(path: Path, tensors: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    """Write contiguous tensors, on the CPU, and texts as safetensors; atomically.

    The library's `save_file` writes to a file named `.tmpXXXXXX`, which stays after a kill, and has
    mode 600.
    """
    header: JsonObject = {"__metadata__": texts}
    end = 0
    widest_first = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, tensor in widest_first:  # So each is aligned.
        begin, end = end, end + tensor.nbytes
        entry = {"dtype": _NAMES[_kind(tensor)], "shape": [*tensor.shape]}
        header[name] = entry | {"data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in widest_first:
            file.write(_bytes(tensor))


def tensors_digest(tensors: Mapping[str, Any]) -> str:
    """SHA-256 of names, types, shapes and values, the same of NumPy's arrays and of torch's."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} torch.{_kind(tensor)} {tuple(tensor.shape)} ".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _kind(tensor: Any) -> str:
    """The type of an array of NumPy or a tensor of torch."""
    return str(tensor.dtype).removeprefix("torch.")


def _bytes(tensor: Any) -> Any:
    """The values of an array of NumPy or a tensor of torch as an array of bytes; no copy."""
    flat = tensor.reshape(-1)
    if str(tensor.dtype).startswith("torch."):
        import torch

        flat = flat.view(torch.uint8).numpy()
    return flat.view("u1")
