"""Checks an ONNX graph before onnxruntime reads it, by a small reader of protobuf.

Accepted are graphs of the exporter's operators, without loops, branches and functions, whose
weights lie in the graph or in the folder's weights file. Their sizes need no check: onnxruntime
computes nothing before the first run, whose memory `captioner.backends.graphs` limits. Numbers of
fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; a field without a name
here is refused.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

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
_WEIGHTS = {1: "float32", 10: "float16"}  # Types of external weights.
STORED = ".stored"  # Ends the name in a graph of a tensor of the weights file.

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
    for message in graph[5]:
        tensor = _message(message, _EXTERNAL_TENSOR)
        if tensor[13]:
            (kind,) = tensor[2]
            entries = [_message(entry, (1, 2)) for entry in tensor[13]]
            place = {_text(entry[1]): _text(entry[2]) for entry in entries}
            if place["location"] != WEIGHTS or len(entries) != 3:
                raise ValueError(f"weights elsewhere than in {WEIGHTS}")
            begin = int(place["offset"])
            end = begin + int(place["length"])
            stored = StoredTensor(_WEIGHTS[kind], tuple(tensor[1]), begin, end)
            external[_text(tensor[8])] = stored
    for message in graph[1]:
        _check_node(_message(message, _NODE))
    return external


def _check_node(node: _Fields) -> None:
    operator = _text(node[4])
    if operator not in OPERATORS or any(node[7]):
        raise ValueError(f"the operator {operator[:40]!r}")
    for message in node[5]:
        for tensor in _message(message, _ATTRIBUTE)[5]:
            _message(tensor, _TENSOR)


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
