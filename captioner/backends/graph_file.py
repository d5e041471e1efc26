"""Checks an ONNX graph before onnxruntime reads it, by a small reader of protobuf.

Accepted are graphs of the exporter's operators, without loops, branches and functions, whose
weights lie in the graph or in the folder's weights file. Sizes of new tensors come from inputs or
small constants. Numbers of fields are those of
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; a field without a name here is refused.
"""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from captioner.errors import GraphError
from captioner.files import read_text
from captioner.model_folders import WEIGHTS
from captioner.weight_files import StoredTensor

OPERATORS = frozenset(read_text(Path(__file__).with_name("operators.txt")).split())
"""What the exporter writes, over encoders of every library; a test derives it."""

_MODEL = (1, 2, 3, 4, 5, 6, 7, 8, 14)  # Not functions (25) or training (20).
_GRAPH = (1, 2, 5, 10, 11, 12, 13, 16)
_NODE = (1, 2, 3, 4, 5, 6, 7)
_ATTRIBUTE = (1, 2, 3, 4, 5, 7, 8, 20)  # Numbers, text or a tensor, and not a graph (6).
_TENSOR = (1, 2, 8, 9)
_EXTERNAL_TENSOR = (*_TENSOR, 13, 14)

_MOST_FIELDS = 2**17  # Of a message.
_LARGEST_SIZE = 2**24  # Product of all constants that a size is computed from, and a hidden size.
_LARGEST_CONSTANT = 512  # Bytes of a constant that a size may be computed from.
_CONSTANTS = {1: "<f4", 6: "<i4", 7: "<i8"}  # Their types.
_WEIGHTS = {1: "float32", 10: "float16"}  # Types of external weights.
STORED = ".stored"  # Ends the name in a graph of a tensor of the weights file.

# The first of the inputs that are sizes. Other operators are limited by the memory that
# `captioner.backends.graphs` allows.
_SIZES = {"ConstantOfShape": 0, "Expand": 1, "Pad": 1, "Range": 0, "Resize": 2}

_Fields = dict[int, list[Any]]


def external_weights(path: Path, content: bytes) -> dict[str, StoredTensor]:
    """Check a graph; returns the weights, by name, that it does not hold.

    path: of its file, for messages. Raises `GraphError`.
    """
    try:
        (graph,) = _message(memoryview(content), _MODEL)[7]
        return _check_graph(_message(graph, _GRAPH))
    except (ValueError, IndexError, KeyError, TypeError) as error:
        problem = f"is damaged, or none of captioner's ({error})"
        raise GraphError(f"graph {path} {problem}; copy or export the model again") from None


def _check_graph(graph: _Fields) -> dict[str, StoredTensor]:
    external = {}
    growth: dict[str, float] = {}  # Of each value: the product of the constants behind it.
    for message in graph[5]:
        tensor = _message(message, _EXTERNAL_TENSOR)
        name, (kind,) = _text(tensor[8]), tensor[2]
        if tensor[13]:
            entries = [_message(entry, (1, 2)) for entry in tensor[13]]
            place = {_text(entry[1]): _text(entry[2]) for entry in entries}
            if place["location"] != WEIGHTS or len(entries) != 3:
                raise ValueError(f"weights elsewhere than in {WEIGHTS}")
            begin = int(place["offset"])
            end = begin + int(place["length"])
            external[name] = StoredTensor(_WEIGHTS[kind], tuple(tensor[1]), begin, end)
        raw = b"".join(tensor[9])
        growth[name] = math.inf
        if kind in _CONSTANTS and len(raw) <= _LARGEST_CONSTANT and not tensor[13]:
            values = np.frombuffer(raw, _CONSTANTS[kind]).tolist()
            growth[name] = math.prod(max(1.0, abs(value)) for value in values)
    nodes = [_message(message, _NODE) for message in graph[1]]
    # The gates of a recurrent layer take memory beside the limit: four times that of its outputs.
    largest = _LARGEST_SIZE // max(map(_hidden_size, nodes), default=1)
    for node in nodes:
        _check_node(node, growth, largest)
    return external


def _hidden_size(node: _Fields) -> int:
    """The attribute `hidden_size` of a recurrent layer; 1 of another operator."""
    if _text(node[4]) not in ("GRU", "LSTM"):
        return 1
    if not bytes(node[2][0]):
        raise ValueError("a recurrent layer without outputs, which would have no limit")
    attributes = [_message(message, _ATTRIBUTE) for message in node[5]]
    sizes = [field[3][0] for field in attributes if field[3] and _text(field[1]) == "hidden_size"]
    return max(sizes, default=1) or 1


def _check_node(node: _Fields, growth: dict[str, float], largest: int) -> None:
    operator = _text(node[4])
    if operator not in OPERATORS or any(node[7]):
        raise ValueError(f"the operator {operator[:40]!r}")
    for message in node[5]:
        for tensor in _message(message, _ATTRIBUTE)[5]:
            _message(tensor, _TENSOR)
    behind = [growth.get(_text([name]), 1.0) for name in node[1]]
    sizes = behind[_SIZES.get(operator, len(behind)) :]
    if not all(size <= largest for size in sizes):
        raise ValueError(f"a large constant as size in {operator}")
    grown = 1.0 if operator == "Shape" else math.prod(behind)
    growth.update((_text([name]), grown) for name in node[2] if name)


def _text(values: list[Any]) -> str:
    """The text of a field that a message has once."""
    (value,) = values
    return bytes(value).decode()


def _message(data: memoryview, known: tuple[int, ...]) -> _Fields:
    """The fields of a message by number: integers, or bytes of text, messages and floats."""
    fields: _Fields = defaultdict(list)
    place = count = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        count += 1
        if number not in known or kind not in (0, 2, 5) or count > _MOST_FIELDS:
            raise ValueError(f"a field of number {number}")
        size, place = (4, place) if kind == 5 else _varint(data, place)
        fields[number].append(data[place : place + size] if kind else size)
        place += size if kind else 0
    if place > len(data):
        raise ValueError("less than its length")
    return fields


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, least first, and the place behind it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    raise ValueError("a number without an end")
