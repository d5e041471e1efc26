"""ONNX graphs: opens them, and drives the steps of a search with NumPy; imports no torch."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import onnxruntime

from captioner.arrays import Array
from captioner.backends.graph_file import STORED, external_weights
from captioner.decoding.rules import Constraints
from captioner.decoding.search import Advanced, Hypothesis, StepChoices, search_hypotheses
from captioner.errors import GraphError, UserError
from captioner.files import read_bytes
from captioner.memory_limits import allowed_cores, is_memory_error, memory_sentence, memory_size
from captioner.model_folders import GRAPHS, WEIGHTS, ModelFolder
from captioner.text.vocabulary import Vocabulary
from captioner.weight_files import StoredTensor, tensors_digest

ENCODER, START, STEP = GRAPHS
WEIGHTS_DIGEST, MAP_SHAPE = "weights", "map_shape"  # Keys of a graph's metadata.
NEXT = "next_"  # Begins the names of a step's outputs that are inputs of the next step.
MEMORY = "memory"  # Begins the names of arrays (B, ...) that the rows of a source share.

# Folding computes a stranger's constants at opening, in memory without a limit.
_DISABLED = ["ConstantFolding"]
if "1.23" <= onnxruntime.__version__ < "1.30":  # There it dies without folding, at float16 weights.
    _DISABLED.append("FuseFp16InitializerToFp32NodeTransformer")

_MOST_MEMORY = 4 * 10**9  # Bytes of all graphs; three quarters of what there is where that is less.


def default_threads() -> int:
    """The threads of torch on a CPU: `OMP_NUM_THREADS`, or one for each allowed core."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() and int(threads) else allowed_cores()


class Graph:
    """A graph, ready to run on the CPU, on so many threads. weights: that it does not hold."""

    def __init__(self, content: bytes, threads: int, weights: Mapping[str, Array]) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # Fatal only: errors are raised as well.
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Idle threads would spin and take the cores of the next graph: 1.5 times a photo's time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        values = list(map(onnxruntime.OrtValue.ortvalue_from_numpy, weights.values()))
        options.add_external_initializers(list(weights), values)
        _limit_memory()
        self._session = onnxruntime.InferenceSession(
            content,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_DISABLED,
        )
        self.metadata: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.inputs = {item.name: item for item in self._session.get_inputs()}
        self.outputs = {item.name: item for item in self._session.get_outputs()}

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs, by name."""
        return dict(zip(self.outputs, self._session.run(None, inputs), strict=True))


@contextmanager
def graph_errors(folder: Path) -> Iterator[None]:
    """Raise `GraphError` for any error of onnxruntime, or of graphs with other inputs or outputs.

    onnxruntime raises many types, and its messages name lines of its code.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}; copy or export the model again"
        if is_memory_error(error):
            reason = memory_sentence(error)
        raise GraphError(f"{folder}: its graphs cannot be run: {reason}") from None


@cache
def _limit_memory() -> None:
    """Limit the memory of all graphs that are opened with `session.use_env_allocators`."""
    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    info = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    limits = {"max_mem": min(_MOST_MEMORY, memory_size() * 3 // 4)}
    onnxruntime.create_and_register_allocator(info, onnxruntime.OrtArenaCfg(limits))


def open_graphs(
    folder: ModelFolder, names: Sequence[str], threads: int, weights: Mapping[str, Array]
) -> list[Graph]:
    """The graphs of a model folder. weights: those of its weights file.

    Refuses graphs that are damaged or of other weights, and what `captioner.backends.graph_file`
    refuses, with `GraphError`.
    """
    files = folder.files
    contents = {name: read_bytes(files / name, "graph") for name in names}
    _limit_memory()  # Once, before threads do.

    def open_graph(name: str) -> tuple[Graph, bool]:
        external = external_weights(files / name, contents[name])
        if external and not weights:
            raise UserError(f"model weights {files / WEIGHTS} does not exist")
        own = _values_of(external, weights, files)
        return Graph(contents[name], threads, own), bool(external)

    # Two at a time: the first graph takes as long to open as all else.
    with ThreadPoolExecutor(2) as pool, graph_errors(files):
        opened = pool.map(open_graph, names)
        check = pool.submit(folder.check, contents)
        digest = pool.submit(tensors_digest, weights)
        graphs, are_external = zip(*opened, strict=True)
        check.result()
        found = digest.result() if any(are_external) else None
    if {graph.metadata.get(WEIGHTS_DIGEST) for graph in graphs} != {found}:
        problem = "are of other weights, or these are damaged; copy or train the model again"
        raise GraphError(f"the graphs in {files} {problem}")
    return list(graphs)


def _values_of(
    external: Mapping[str, StoredTensor], weights: Mapping[str, Array], files: Path
) -> dict[str, Array]:
    """The weights that a graph refers to, by their names in it, wherever the file has them."""
    values = {}
    for name, expected in external.items():
        tensor = weights.get(name.removesuffix(STORED))
        if tensor is None or (tensor.dtype.name, tensor.shape) != (expected.dtype, expected.shape):
            problem = f"tensor {name!r} of the graphs is another, or missing"
            raise GraphError(f"{files / WEIGHTS}: {problem}")
        values[name] = tensor
    return values


class GraphStepper:
    """The `Stepper` of two graphs, whose inputs and outputs `captioner.backends.export` describes.

    inputs: of `start`. rules: of `search_inputs`.
    """

    drops_finished = True

    def __init__(
        self, start: Graph, step: Graph, inputs: dict[str, Array], rules: list[dict[str, Array]]
    ) -> None:
        self._step = step
        self._state = start.run(inputs)
        taken = step.inputs.keys() & rules[0].keys()
        self._rules = [{name: of_step[name] for name in taken} for of_step in rules]
        self.batch_size = len(next(iter(inputs.values())))

    def start(self) -> dict[str, Array]:
        """The inputs of the first step; those that `start` does not give are empty."""
        first = {
            "history": np.full((self.batch_size, 1, 1), Vocabulary.start),
            "totals": np.zeros((self.batch_size, 1), np.float32),
            "live": np.ones((self.batch_size, 1), bool),
            "ended": np.zeros((self.batch_size, 1), np.int64),
            **self._state,
        }
        for name, item in self._step.inputs.items():
            if name not in first and name not in self._rules[0]:
                shape = [0 if isinstance(size, str) else size for size in item.shape]
                shape[0] = self.batch_size
                if not name.startswith(MEMORY):
                    shape[1] = 1  # One row a source.
                first[name] = np.zeros(shape, bool if item.type == "tensor(bool)" else np.float32)
        return first

    def advance(self, beam: dict[str, Array]) -> Advanced[dict[str, Array]]:
        """Extend every row by a token."""
        outputs = self._step.run({**beam, **self._rules[: beam["history"].shape[-1]][-1]})
        choices = StepChoices(*(outputs[name] for name in StepChoices._fields))
        beam = {name: outputs.get(NEXT + name, array) for name, array in beam.items()}
        return beam, choices, outputs["live_counts"]

    def narrow(self, beam: dict[str, Array], width: int) -> dict[str, Array]:
        """Keep the first `width` rows of each source."""
        return {
            name: array if name.startswith(MEMORY) else array[:, :width]
            for name, array in beam.items()
        }

    def keep_sources(self, beam: dict[str, Array], sources: list[int]) -> dict[str, Array]:
        """Keep these sources only."""
        return {name: array[sources] for name, array in beam.items()}

    def to_numpy(self, arrays: list[Array]) -> list[Array]:
        """Return them: they are NumPy's already."""
        return arrays


def search_graphs(
    stepper: GraphStepper,
    vocabulary_size: int,
    map_length: int | None,
    maximum_length: int,
    coverage_penalty: float = 0.0,
    mask: Array | None = None,
) -> list[list[Hypothesis]]:
    """`search_hypotheses` by graphs, one or more a source.

    map_length: L or S; None without attention. Raises `ValueError` for tokens outside of the
    vocabulary, maps of another length or below 0, and numbers that are infinite or NaN.
    """
    found = search_hypotheses(stepper, maximum_length, coverage_penalty, mask)
    for each in chain.from_iterable(found):
        maps = each.attention
        are_words = all(0 <= token < vocabulary_size for token in each.tokens)
        has_shape = map_length is None or maps.shape == (len(each.tokens), map_length)
        is_finite = math.isfinite(each.score + each.log_probability)
        if not (are_words and has_shape and is_finite and (maps >= 0).all()):
            raise ValueError("a step answers what no search gives")
    if not all(found):
        raise ValueError("a source without a hypothesis")
    return found


def search_inputs(constraints: Constraints, vocabulary_size: int) -> list[dict[str, Array]]:
    """What steps take of a search: their rules, and the beam's size and normalisation.

    The last is for all later steps.
    """
    others = {
        "width": np.zeros(constraints.search.beam, np.float32),  # A graph takes its size.
        "length_normalisation": np.array(constraints.search.length_normalisation, np.float32),
    }
    return [{**rules.inputs(), **others} for rules in constraints.steps(vocabulary_size)]
