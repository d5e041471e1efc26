"""Weights of graphs: references to a model folder's, or stored in the graph in fewer bits."""

import hashlib
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from captioner.errors import UserError
from captioner.memory_limits import check_memory
from captioner.model_folders import weights_header

Array = np.ndarray[Any, Any]

Precision = Literal["float32", "float16", "int8"]

_LEAST_ELEMENTS = 4_096  # Smaller tensors stay float32, and so do biases.
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
        header, first = weights_header(path)
        try:
            self.digest = header.pop("__metadata__", {}).get("sha256", "")
            size = len(self._content)
            self._places = {name: _place(first, size, **entry) for name, entry in header.items()}
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

    def reference(self, name: str, graph_name: str) -> Any:
        """An ONNX tensor whose values are those of a tensor of the file, float16 or float32.

        graph_name: its name in the graph.
        """
        from onnx import TensorProto

        place = self._places[name]
        kind = TensorProto.FLOAT16 if place.dtype == "F16" else TensorProto.FLOAT
        tensor = TensorProto(name=graph_name, data_type=kind)
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


def store_weights(graph: Any, precision: Precision) -> None:
    """Store the large weights of a graph in fewer bits, with the nodes that restore them."""
    from onnx import TensorProto, helper, numpy_helper

    restoring = []
    for tensor in list(graph.initializer):
        weight = numpy_helper.to_array(tensor)
        is_large = weight.ndim > 1 and weight.size >= _LEAST_ELEMENTS
        if tensor.data_type != TensorProto.FLOAT or not is_large:
            continue
        graph.initializer.remove(tensor)
        parts = quantised(weight) if precision == "int8" else [weight.astype(np.float16)]
        casts = []
        for number, values in enumerate(parts):
            stored = f"{tensor.name}.{number}"
            casts.append(f"{stored}.cast")
            graph.initializer.append(numpy_helper.from_array(values, stored))
            restoring.append(helper.make_node("Cast", [stored], casts[-1:], to=TensorProto.FLOAT))
        operation = "Mul" if precision == "int8" else "Identity"
        restoring.append(helper.make_node(operation, casts, [tensor.name]))
    for node in reversed(restoring):
        graph.node.insert(0, node)


def refer_to(weights: StoredWeights, graph: Any) -> None:
    """Replace the weights of a graph, or their transposes, by references to those of a file."""
    from onnx import TensorProto, helper, numpy_helper

    def key(values: Array) -> tuple[Any, bytes]:
        return values.shape, hashlib.sha256(values.tobytes()).digest()

    names = {}  # The name of a weight, and whether to transpose.
    for name in weights.names():
        stored = weights.get(name)
        if stored is not None and stored.dtype in (np.float16, np.float32):
            values = stored.astype(np.float32)
            if values.ndim == 2:
                names[key(values.T)] = name, True
            names[key(values)] = name, False
    nodes = []
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or key(values) not in names:
            continue
        name, is_transposed = names[key(values)]
        reference = f"{name}.stored"
        graph.initializer.remove(tensor)
        graph.initializer.append(weights.reference(name, reference))
        restored = f"{reference}.restored" if is_transposed else tensor.name
        nodes.append(helper.make_node("Cast", [reference], [restored], to=TensorProto.FLOAT))
        if is_transposed:
            nodes.append(helper.make_node("Transpose", [restored], [tensor.name], perm=[1, 0]))
    for node in reversed(nodes):
        graph.node.insert(0, node)


def quantised(weight: Array) -> tuple[Any, Any]:
    """Weights (O, I) or (O, I, ...) -> int8, and the float16 scales that restore them.

    A convolution's kernels have a scale each, (O, I, 1, 1): one for all of a channel would be as
    coarse as the identity that dilated convolutions start from. Kernels of 1x1 share a row's.
    """
    axes = tuple(range(2 if weight[0, 0].size > 1 else 1, weight.ndim))
    scale = np.abs(weight).max(axis=axes, keepdims=True) / 127
    scale = np.where(scale > 1e-7, scale, 1).astype(np.float16)
    numbers = np.rint(weight / scale.astype(np.float32)).clip(-127, 127)
    return numbers.astype(np.int8), scale
