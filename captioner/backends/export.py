"""Writes models as ONNX graphs, by torch's exporter.

    encoder.onnx   pixels (B, 3, size, size) -> annotations (B, L, D); of captioners
    start.onnx     annotations, or tokens and mask (B, S) -> the decoder's state
    step.onnx      a beam (`captioner.decoding.loop.Beam`), its state and the rules of the search
                   -> `StepChoices`, live_counts and the next beam, named next_...

All are of opset 18, with a dynamic batch and beam. Arrays of the state that rows share are named
memory.0, ..., those of each row rows.0, ...; the step holds the whole search. All arithmetic is
float32. Beside a saved model a graph has some KB: its weights are those of `model.safetensors`. An
exported graph holds its weights, in float32 or float16.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from onnxscript import opset18
from torch import Tensor, nn

from captioner.attention.memory import Memory
from captioner.backends.export_recurrent import RECURRENT, with_operators
from captioner.backends.export_weights import Precision, refer_to, store_weights
from captioner.backends.graph_file import external_weights
from captioner.backends.graphs import ENCODER, MAP_SHAPE, MEMORY, NEXT, START, STEP, WEIGHTS_DIGEST
from captioner.backends.torch_captions import TorchCaptions, load_networks
from captioner.backends.torch_translations import load_translation_model
from captioner.decoding.constraints import BLOCKED
from captioner.decoding.loop import Beam, BeamSearch, advance
from captioner.decoding.options import AnySearch
from captioner.decoding.protocol import State, map_state, select_rows
from captioner.decoding.rules import Constraints, Rules
from captioner.decoding.search import StepChoices
from captioner.errors import UserError, refuse_errors
from captioner.files import write_bytes
from captioner.model_folders import WEIGHTS, ModelFolder
from captioner.model_saving import copy_model, saving
from captioner.models.caption_decoder import CaptionDecoder
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.models.translation_model import TranslationModel
from captioner.text.vocabulary import Vocabulary
from captioner.weight_files import tensors_digest

if TYPE_CHECKING:
    from onnx import ModelProto

Sizes = list[dict[int, str]]
"""Names of the sizes of tensors that are not fixed, by axis."""

OPSET = 18
_Decoder = CaptionDecoder | TranslationModel

_operators: Any = opset18


def add_graphs(folder: Path) -> None:
    """Write a saved model again with graphs beside its weights: some KB, which read that file.

    Each weight is ONNX *external data* at its offset in `model.safetensors`, restored to float32
    in each run. A graph names the digest of its weights, so that it reads no other model's.
    """
    model = ModelFolder(folder)
    weights = model.tensors()
    if model.kind == "translator":
        graphs = _of_translator(model)
    else:
        graphs = _of_captioner(load_networks(model))
    digest = tensors_digest(weights)
    with saving(folder) as files:
        copy_model(folder, files)
        for name, graph in graphs.items():
            refer_to(model.files / WEIGHTS, weights, graph.graph)
            graph.metadata_props.add(key=WEIGHTS_DIGEST, value=digest)
            write_bytes(files / name, _content(name, graph))


def captioner_graphs(model: TorchCaptions, precision: Precision = "float32") -> dict[str, bytes]:
    """The files, by name, of graphs that hold the weights of a captioner."""
    files = {}
    for name, graph in _of_captioner(model).items():
        if precision != "float32":
            store_weights(graph.graph)
        files[name] = _content(name, graph)
    return files


def _content(name: str, graph: ModelProto) -> bytes:
    """A graph as a file, unless it has an operator that `graph_file` does not know."""
    content: bytes = graph.SerializeToString()
    external_weights(Path(name), content)
    return content


def _of_captioner(model: TorchCaptions) -> dict[str, ModelProto]:
    """The graphs of a captioner, by the names of their files."""
    if not isinstance(model.decoder, ShowAttendTellDecoder):
        kind = model.decoder.config.kind
        raise UserError(f"a decoder of kind {kind!r} cannot be exported, only 'lstm'")
    decoder = deepcopy(model.decoder).float().eval()
    encoder = model.encoder.for_inference(torch.float32)
    size = model.preprocessing.size
    with _quiet(), torch.no_grad():
        pixels = torch.rand(2, 3, size, size)  # Sizes of 1 would become constants of the graph.
        graph = _graph(encoder, {"pixels": pixels}, ["annotations"], [{0: "batch"}])
        graph.metadata_props.add(key=MAP_SHAPE, value=json.dumps(model.map_shape))

        def examples(batch: int, _: int) -> dict[str, Tensor]:
            return {"annotations": encoder(torch.rand(batch, 3, size, size))}

        searching = _search_graphs(decoder, decoder.remember, examples, [{0: "batch"}])
        return {ENCODER: graph, **searching}


def _of_translator(folder: ModelFolder) -> dict[str, ModelProto]:
    """The graphs of a saved translator, by the names of their files."""
    model = with_operators(load_translation_model(folder).model)

    def examples(batch: int, length: int) -> dict[str, Tensor]:
        mask = torch.arange(length).expand(batch, -1) < length - 1  # With padding.
        return {"tokens": torch.full((batch, length), Vocabulary.end), "mask": mask}

    with _quiet(), torch.no_grad():
        sizes: Sizes = [{0: "batch", 1: "source"}] * 2
        return _search_graphs(model, model.remember, examples, sizes)


class _Leaf(NamedTuple):
    """A tensor of a state, and whether it belongs to a memory, which hypotheses share."""

    tensor: Tensor
    is_memory: bool


def _visited(state: State, visit: Callable[[Tensor, bool], Tensor]) -> State:
    """A state whose tensors are replaced. visit: takes each, and whether it is of a memory."""

    def of_memory(memory: Memory) -> Memory:
        values = visit(memory.values, True)
        keys = values if memory.keys is memory.values else visit(memory.keys, True)
        return Memory(values, keys, None if memory.mask is None else visit(memory.mask, True))

    return map_state(state, lambda rows: visit(rows, False), of_memory)


def _leaves(state: State) -> list[_Leaf]:
    """The tensors of a state, in order."""
    leaves = []

    def visit(tensor: Tensor, is_memory: bool) -> Tensor:
        leaves.append(_Leaf(tensor, is_memory))
        return tensor

    _visited(state, visit)
    return leaves


def _with_leaves(state: State, tensors: Sequence[Tensor]) -> State:
    """A state of the same form as another, of other tensors."""
    left = iter(tensors)
    return _visited(state, lambda *_: next(left))


class _Search(nn.Module):
    """A part of the search as a module, for the exporter. part: computes with the decoder."""

    def __init__(self, decoder: nn.Module, part: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.decoder = decoder
        self.part = part

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.part(*inputs)


def _search_graphs(
    decoder: _Decoder,
    remember: Callable[..., Memory],
    examples: Callable[[int, int], dict[str, Tensor]],
    start_sizes: Sizes,
) -> dict[str, ModelProto]:
    """The graphs of start and step.

    examples: makes inputs of `start` for B sources of length S. start_sizes: their dynamic sizes.
    """

    def state_of(batch: int, source: int, beam: int, fed: int) -> State:
        memory = remember(*examples(batch, source).values())
        tokens = torch.ones(batch, beam, dtype=torch.long)
        state = select_rows(decoder.start(memory), torch.zeros_like(tokens))
        for _ in range(fed):
            state = decoder.step(tokens, state).state
        return state

    base = {"batch": 2, "source": 7, "beam": 3, "fed": 2}
    state = state_of(**base)
    leaves = _leaves(state)
    # A size takes the name of the number that changes it. "fed" is last and wins: the number of
    # tokens in a cache changes with the beam too.
    sizes: Sizes = [{} for _ in leaves]
    for name, number in base.items():
        others = _leaves(state_of(**{**base, name: number + 2}))
        for axes, leaf, other in zip(sizes, leaves, others, strict=True):
            pairs = enumerate(zip(leaf.tensor.shape, other.tensor.shape, strict=True))
            axes.update((axis, name) for axis, (size, changed) in pairs if size != changed)
    kinds = [MEMORY if leaf.is_memory else "rows" for leaf in leaves]
    names = [f"{kind}.{number}" for number, kind in enumerate(kinds)]
    inputs = examples(base["batch"], base["source"])

    def start(*inputs: Tensor) -> tuple[Tensor, ...]:  # All but what is empty at first.
        tensors = (leaf.tensor for leaf in _leaves(decoder.start(remember(*inputs))))
        return tuple(tensor for tensor in tensors if 0 not in tensor.shape)

    outputs = names[: len(start(*inputs.values()))]
    return {
        START: _graph(_Search(decoder, start), inputs, outputs, start_sizes),
        STEP: _step_graph(decoder, state, names, sizes),
    }


def _step_graph(decoder: _Decoder, state: State, names: list[str], sizes: Sizes) -> ModelProto:
    """The graph of a step, which takes the beam, the rules of the search and a state.

    names, sizes: of the tensors of the state, which is an example.
    """
    leaves = _leaves(state)
    rows = {0: "batch", 1: "beam"}
    batch, width = next(leaf.tensor.shape[:2] for leaf in leaves if not leaf.is_memory)
    tokens = torch.ones(batch, width, dtype=torch.long)
    step = decoder.step(tokens, state)
    example = AnySearch(maximum_length=20, block_ngrams=3, repeat_distance=2)
    vocabulary_size = step.logits.shape[-1]
    every = Constraints(example, phrases=((1, 2, 3),) * 2).rules(vocabulary_size)
    if isinstance(decoder, TranslationModel):  # 31 operators less.
        every = every._replace(classes=None, phrases=None)
    rules = every.inputs()
    beam: dict[str, tuple[Tensor, dict[int, str]]] = {
        "history": (tokens.unsqueeze(-1).repeat(1, 1, 3), {**rows, 2: "written"}),
        "totals": (torch.zeros(tokens.shape), rows),
        "live": (torch.ones_like(tokens, dtype=torch.bool), rows),
        "ended": (torch.zeros_like(tokens[:, :1]), {0: "batch"}),
        "width": (torch.zeros(4), {0: "width"}),
        "length_normalisation": (torch.tensor(1.0), {}),
    }
    for name, array in rules.items():
        sizes_of_rule = enumerate(array.shape)
        axes = {axis: f"{name}_{axis}" for axis, size in sizes_of_rule if size != vocabulary_size}
        beam[name] = (torch.as_tensor(array), axes)
    pairs = zip(leaves, _leaves(step.state), strict=True)
    changed = [place for place, (one, other) in enumerate(pairs) if one.tensor is not other.tensor]

    def search_step(*inputs: Tensor) -> tuple[Tensor, ...]:
        history, totals, live, ended, width, length_normalisation, *rest = inputs
        tensors = dict(zip(rules, rest, strict=False))
        given = Rules(*(tensors.get(name) for name in Rules._fields))
        before = _with_leaves(state, rest[len(rules) :])
        computed = decoder.step(history[..., -1], before)
        # A graph takes the size of the beam as that of an array.
        strategy = BeamSearch(width.shape[0])
        hypotheses = Beam(before, history, totals, live, ended)
        after, choices, live_counts = advance(
            computed, hypotheses, strategy, given, Vocabulary.end, length_normalisation
        )
        leaves_after = [leaf.tensor for leaf in _leaves(after.state)]
        extended = (after.history, after.totals, after.live, after.ended)
        return (*choices, live_counts, *extended, *(leaves_after[place] for place in changed))

    outputs = [*StepChoices._fields, "live_counts"]
    outputs += [NEXT + name for name in ("history", "totals", "live", "ended")]
    outputs += [NEXT + names[place] for place in changed]
    step_inputs = {name: tensor for name, (tensor, _) in beam.items()}
    step_inputs.update((name, leaf.tensor) for name, leaf in zip(names, leaves, strict=True))
    step_sizes = [axes for _, axes in beam.values()]
    return _graph(_Search(decoder, search_step), step_inputs, outputs, [*step_sizes, *sizes])


def _graph(
    module: nn.Module, inputs: Mapping[str, Tensor], outputs: list[str], sizes: Sizes
) -> ModelProto:
    """The graph of a module that takes these inputs in order. sizes: of each, by axis."""
    is_search = isinstance(module, _Search)
    names = sorted({name for axes in sizes for name in axes.values()})
    dimensions = {name: torch.export.Dim(name) for name in names}
    dynamic = [{axis: dimensions[name] for axis, name in axes.items()} for axes in sizes]
    with refuse_errors("this model cannot be exported"):
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=outputs,
            # The tensors of a search are one starred argument.
            dynamic_shapes=(tuple(dynamic),) if is_search else tuple(dynamic),
            custom_translation_table=_TRANSLATIONS if is_search else None,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    if not graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise UserError("this encoder's graph would take batches of 2 only; use another encoder")
    del graph.graph.value_info[:]
    for node in graph.graph.node:  # They name lines of code and their files.
        node.ClearField("doc_string")
        del node.metadata_props[:]
    return graph


def _index(values: object, indices: Sequence[object], **_: object) -> object:
    """`values[..., index]`, by one operator in place of up to four.

    Of two indices, which are those of `select_rows`, the first has all sources in order.
    """
    if len(indices) == 2 and None not in indices:
        last = _operators.Constant(value_ints=[-1])
        return _operators.GatherND(values, _operators.Unsqueeze(indices[1], last), batch_dims=1)
    (axis,) = (axis for axis, index in enumerate(indices) if index is not None)
    return _operators.Gather(values, indices[axis], axis=axis)


def _select_scatter(values: Any, source: Any, dim: int, index: int, **_: Any) -> Any:
    """`values[..., index] = source`, in place: choosing among all values takes 10 times as long."""
    assert dim in (-1, len(values.shape) - 1)
    update = _operators.Unsqueeze(source, _operators.Constant(value_ints=[-1]))
    indices = _operators.Constant(value_ints=[index])
    places = _operators.Expand(indices, _operators.Shape(update))
    return _operators.ScatterElements(values, places, update, axis=-1)


def _attend(query: Any, keys: Any, values: Any, mask: Any = None, *_: Any, **__: Any) -> Any:
    """Scaled dot-product attention, by 4 operators of 15. No row of the mask is all False."""
    scale = _operators.Constant(value_float=query.shape[-1] ** -0.5)
    transposed = _operators.Transpose(keys, perm=[0, 1, 3, 2])
    scores = _operators.MatMul(_operators.Mul(query, scale), transposed)
    if mask is not None:
        allowed, blocked = (_operators.Constant(value_float=value) for value in (0.0, BLOCKED))
        scores = _operators.Add(scores, _operators.Where(mask, allowed, blocked))
    return _operators.MatMul(_operators.Softmax(scores, axis=-1), values)


_TRANSLATIONS: dict[Any, Any] = {
    torch.ops.aten.index.Tensor: _index,
    torch.ops.aten.take.default: _operators.Gather,
    torch.ops.aten.select_scatter.default: _select_scatter,
    torch.ops.aten.scaled_dot_product_attention.default: _attend,
    # Of whole numbers that are not negative: nine operators less.
    torch.ops.aten.floor_divide.default: _operators.Div,
    **RECURRENT,
}
"""Faster than the exporter's own, of a search."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Export without warnings."""
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
