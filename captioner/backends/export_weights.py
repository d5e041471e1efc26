"""Weights of exported graphs: references to a model folder's, or stored in fewer bits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from captioner.arrays import Array
from captioner.backends.graph_file import STORED
from captioner.weight_files import weights_header

if TYPE_CHECKING:
    from onnx import GraphProto

Precision = Literal["float32", "float16", "int8"]

_LEAST_ELEMENTS = 4_096  # Smaller tensors stay float32, and so do biases.


def store_weights(graph: GraphProto, precision: Precision) -> None:
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


def refer_to(path: Path, weights: Mapping[str, Array], graph: GraphProto) -> None:
    """Replace the weights of a graph, or their transposes, by references to those of a file."""
    from onnx import TensorProto, external_data_helper, helper, numpy_helper

    def key(values: Array) -> tuple[tuple[int, ...], bytes]:
        return values.shape, hashlib.sha256(values.tobytes()).digest()

    names = {}  # The name of a weight, and whether to transpose.
    for name, stored in weights.items():
        if stored.dtype in (np.float16, np.float32):
            values = stored.astype(np.float32)
            if values.ndim == 2:
                names[key(values.T)] = name, True
            names[key(values)] = name, False
    _, places = weights_header(path)
    nodes = []
    references = {}  # A tied weight is in a graph twice, once as its transpose.
    for tensor in list(graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or key(values) not in names:
            continue
        name, is_transposed = names[key(values)]
        reference = numpy_helper.from_array(weights[name], name + STORED)
        place = places[name].begin, places[name].end - places[name].begin
        external_data_helper.set_external_data(reference, path.name, *place)
        reference.ClearField("raw_data")
        graph.initializer.remove(tensor)
        references[reference.name] = reference
        restored = f"{tensor.name}.restored" if is_transposed else tensor.name
        nodes.append(helper.make_node("Cast", [reference.name], [restored], to=TensorProto.FLOAT))
        if is_transposed:
            nodes.append(helper.make_node("Transpose", [restored], [tensor.name], perm=[1, 0]))
    graph.initializer.extend(references.values())
    for node in reversed(nodes):
        graph.node.insert(0, node)


def quantised(weight: Array) -> tuple[Array, Array]:
    """Weights (O, I) or (O, I, ...) -> int8, and the float16 scales that restore them.

    A convolution's kernels have a scale each, (O, I, 1, 1): one for all of a channel would be as
    coarse as the identity that dilated convolutions start from. Kernels of 1x1 share a row's.
    """
    axes = tuple(range(2 if weight[0, 0].size > 1 else 1, weight.ndim))
    scale = np.abs(weight).max(axis=axes, keepdims=True) / 127
    scale = np.where(scale > 1e-7, scale, 1).astype(np.float16)
    numbers = np.rint(weight / scale.astype(np.float32)).clip(-127, 127)
    return numbers.astype(np.int8), scale
