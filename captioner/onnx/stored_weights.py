"""Weights of graphs: references to a model folder's, or stored in the graph in fewer bits."""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from captioner.errors import GraphError
from captioner.files import read_bytes
from captioner.memory_limits import check_memory
from captioner.model_folders import StoredTensor, weights_header

Array = np.ndarray[Any, Any]

Precision = Literal["float32", "float16", "int8"]

STORED = ".stored"  # Ends the name in a graph of a tensor of the weights file.
_LEAST_ELEMENTS = 4_096  # Smaller tensors stay float32, and so do biases.
_TYPES = {"F16": "float16", "F32": "float32", "F64": "float64", "I16": "int16", "I64": "int64"}


class StoredWeights:
    """The content of a safetensors file. tensors: by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        _, self.tensors = weights_header(path)
        check_memory(os.path.getsize(path), f"weights file {path}")
        self._content = read_bytes(path, "model weights", largest=sys.maxsize)

    def digest(self) -> str:
        """SHA-256 of names, types, shapes and values, as `captioner.weight_files` writes it."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            dtype = _TYPES.get(tensor.dtype, tensor.dtype)
            digest.update(f"{name} torch.{dtype} {tensor.shape} ".encode())
            digest.update(memoryview(self._content)[tensor.begin : tensor.end])
        return digest.hexdigest()

    def values(self, name: str) -> Array:
        """A tensor of this file, by name."""
        tensor = self.tensors[name]
        values = memoryview(self._content)[tensor.begin : tensor.end]
        return np.frombuffer(values, _TYPES[tensor.dtype]).reshape(tensor.shape)

    def values_of(self, external: Mapping[str, StoredTensor]) -> dict[str, Array]:
        """The tensors that a graph refers to, by their names in it, wherever the file has them."""
        values = {}
        for name, expected in external.items():
            stored = name.removesuffix(STORED)
            tensor = self.tensors.get(stored)
            if tensor is None or tensor[:2] != expected[:2]:  # Type and shape.
                problem = f"tensor {name!r} of the graphs is another, or missing"
                raise GraphError(f"{self._path}: {problem}")
            values[name] = self.values(stored)
        return values

    def reference(self, name: str, graph_name: str) -> Any:
        """An ONNX tensor whose values are those of a tensor of the file, float16 or float32.

        graph_name: its name in the graph.
        """
        from onnx import external_data_helper, numpy_helper

        stored = self.tensors[name]
        tensor = numpy_helper.from_array(self.values(name), graph_name)
        place = self._path.name, stored.begin, stored.end - stored.begin
        external_data_helper.set_external_data(tensor, *place)
        tensor.ClearField("raw_data")
        return tensor


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
    for name, tensor in weights.tensors.items():
        if tensor.dtype in ("F16", "F32"):
            values = weights.values(name).astype(np.float32)
            if values.ndim == 2:
                names[key(values.T)] = name, True
            names[key(values)] = name, False
    nodes = []
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or key(values) not in names:
            continue
        name, is_transposed = names[key(values)]
        reference = name + STORED
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
