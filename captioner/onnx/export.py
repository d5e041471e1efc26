"""Write a captioner as ONNX graphs, by torch's exporter, and a JSON file that joins them.

Three graphs, with a dynamic batch B and beam K; for the LSTM decoder:

    encoder.onnx   pixels (B, 3, size, size) -> annotations (B, L, D)
    start.onnx     annotations -> values (B, L, D), keys (B, L, A), hidden and cell (B, 1, H)
    step.onnx      tokens (B, K), values, keys, hidden and cell (B, K, H) -> log_probabilities
                   (B, K, V), weights (B, K, L), next_hidden and next_cell

`captioner.json` holds words, search, preprocessing and confidence; `ngrams.bin` the 4-grams of
tokens that people wrote and the clashes (see `captioner.decoding.constraints`), as little-endian
uint16. All arithmetic is float32. Weights are stored in float32, float16, or int8 with a float16
scale for each row of a matrix and each kernel of a convolution, and restored to float32 at loading.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import captioner
from captioner import cpu
from captioner.attention.memory import Memory
from captioner.caption.captioner import Captioner
from captioner.caption.lstm import DecoderState, ShowAttendTellDecoder
from captioner.decoding.constraints import ngrams_of_keys
from captioner.errors import UserError, refuse_missing
from captioner.files import write_bytes, write_json
from captioner.onnx import DESCRIPTION, FORMAT, NGRAMS
from captioner.text.languages import FUNCTION_WORDS

Precision = Literal["float32", "float16", "int8"]

OPSET = 18

MOST_WORDS = 9_741
"""With more, the key of an n-gram would not fit the numbers of JavaScript: 9,741^4 < 2^53."""

_LEAST_ELEMENTS = 4_096  # Smaller tensors stay float32, and so do biases.


class _Start(nn.Module):
    """`start.onnx`."""

    def __init__(self, decoder: ShowAttendTellDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, annotations: Tensor) -> tuple[Tensor, ...]:
        memory = self.decoder.remember(annotations)
        state = self.decoder.start(memory)
        return memory.values, memory.keys, state.hidden, state.cell


class _Step(_Start):
    """`step.onnx`."""

    def forward(  # type: ignore[override]
        self, tokens: Tensor, values: Tensor, keys: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, ...]:
        step = self.decoder.step(tokens, DecoderState(Memory(values, keys), hidden, cell))
        assert isinstance(step.state, DecoderState)
        log_probabilities = torch.log_softmax(step.logits, dim=-1)  # (B, K, V)
        return log_probabilities, step.weights, step.state.hidden, step.state.cell


@torch.no_grad()
def export_captioner(model: Captioner, folder: Path, precision: Precision = "float32") -> None:
    """Write a captioner's ONNX folder; needs the packages onnx and onnxscript."""
    with refuse_missing("export needs onnx", "export"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    if not isinstance(model.decoder, ShowAttendTellDecoder):
        kind = model.decoder.config.kind
        raise UserError(f"a decoder of kind {kind!r} cannot be exported, only 'lstm'")
    if model.ngrams is not None and len(model.vocabulary) > MOST_WORDS:
        raise UserError(f"a captioner with n-grams of more than {MOST_WORDS:,} words has no export")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NGRAMS).unlink(missing_ok=True)  # Of a model that was there before.
    decoder = deepcopy(model.decoder).float().eval()
    encoder = model.encoder.for_inference(torch.float32)
    start, size = _Start(decoder).eval(), model.preprocessing.size
    with _plain_and_quiet():
        pixels = torch.rand(2, 3, size, size)  # Sizes of 1 would become constants of the graph.
        annotations = encoder(pixels)  # (2, L, D)
        state = dict(zip(("values", "keys", "hidden", "cell"), start(annotations), strict=True))
        rows = {name: state[name].expand(-1, 3, -1).contiguous() for name in ("hidden", "cell")}
        inputs = {"tokens": torch.ones(2, 3, dtype=torch.long), **state, **rows}
        outputs = ["log_probabilities", "weights", "next_hidden", "next_cell"]
        for name, module, given, named in (
            ("encoder", encoder, {"pixels": pixels}, ["annotations"]),
            ("start", start, {"annotations": annotations}, list(state)),
            ("step", _Step(decoder).eval(), inputs, outputs),
        ):
            model_proto = _graph(module, given, named)
            if not model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
                raise UserError(f"the graph {name}.onnx fixes its batch size; use another encoder")
            if precision != "float32":
                _store_weights(model_proto.graph, precision)
            write_bytes(folder / f"{name}.onnx", model_proto.SerializeToString())
    _describe(model, folder, precision)


def _graph(module: nn.Module, inputs: dict[str, Tensor], outputs: list[str]) -> Any:
    """The graph of a module with dynamic B, and dynamic K of tokens and of their rows."""
    one = {0: torch.export.Dim("batch")}
    many = {**one, 1: torch.export.Dim("beam")}
    with_beam = ("tokens", "hidden", "cell")
    program = torch.onnx.export(
        module,
        tuple(inputs.values()),
        dynamo=True,
        opset_version=OPSET,
        input_names=list(inputs),
        output_names=outputs,
        dynamic_shapes=tuple(many if name in with_beam else one for name in inputs),
        verbose=False,
    )
    assert program is not None
    return program.model_proto


def _describe(model: Captioner, folder: Path, precision: Precision) -> None:
    """Write what the graphs do not hold."""
    vocabulary = model.vocabulary
    files = {path.name: path.stat().st_size for path in sorted(folder.glob("*.onnx"))}
    if model.ngrams is not None:
        ngrams = ngrams_of_keys(model.ngrams.cpu(), len(vocabulary))  # (N, ORDER)
        write_bytes(folder / NGRAMS, ngrams.numpy().astype("<u2").tobytes())
        files[NGRAMS] = (folder / NGRAMS).stat().st_size
    description = {
        "format": FORMAT,
        "captioner": captioner.__version__,
        "opset": OPSET,
        "precision": precision,
        "files": files,
        "preprocessing": model.preprocessing.model_dump(),
        "map_shape": list(model.map_shape),
        "search": model.search.model_dump(),
        "words": list(vocabulary.words),
        "repeatable": vocabulary.encode(sorted(FUNCTION_WORDS & set(vocabulary.words))),
        "has_ngrams": model.ngrams is not None,
        "confidence": model.confidence and model.confidence.model_dump(),
        "card": model.card,
    }
    write_json(folder / DESCRIPTION, description)


def _store_weights(graph: Any, precision: Precision) -> None:
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


def quantised(weight: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Weights (O, I) or (O, I, ...) -> int8, and the float16 scales that restore them.

    A convolution's kernels have a scale each, (O, I, 1, 1): one for all of a channel would be as
    coarse as the identity that dilated convolutions start from. Kernels of 1x1 share a row's.
    """
    axes = tuple(range(2 if weight[0, 0].size > 1 else 1, weight.ndim))
    scale = np.abs(weight).max(axis=axes, keepdims=True) / 127
    scale = np.where(scale > 1e-7, scale, 1).astype(np.float16)
    numbers = np.rint(weight / scale.astype(np.float32)).clip(-127, 127)
    return numbers.astype(np.int8), scale


@contextmanager
def _plain_and_quiet() -> Iterator[None]:
    """Export plain torch code (`captioner.cpu` chooses by the number of rows), without warnings."""
    before = os.environ.get(cpu.SWITCH)
    os.environ[cpu.SWITCH] = "0"
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        os.environ.pop(cpu.SWITCH)
        if before is not None:
            os.environ[cpu.SWITCH] = before
