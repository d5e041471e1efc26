"""Weights of exported graphs: references to a model folder's, or stored in float16."""

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

Precision = Literal["float32", "float16"]

_LEAST_ELEMENTS = 4_096  # Smaller tensors stay float32, and so do biases.


def store_weights(graph: GraphProto) -> None:
    """Store the large weights of a graph in float16, with the casts that restore them."""
    from onnx import TensorProto, helper, numpy_helper

    casts = []
    for tensor in list(graph.initializer):
        weight = numpy_helper.to_array(tensor)
        is_large = weight.ndim > 1 and weight.size >= _LEAST_ELEMENTS
        if tensor.data_type != TensorProto.FLOAT or not is_large:
            continue
        stored = numpy_helper.from_array(weight.astype(np.float16), f"{tensor.name}.0")
        graph.initializer.remove(tensor)
        graph.initializer.append(stored)
        casts.append(helper.make_node("Cast", [stored.name], [tensor.name], to=TensorProto.FLOAT))
    for node in reversed(casts):
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
