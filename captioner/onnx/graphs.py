"""ONNX graphs: opens them, and drives the steps of a search with NumPy; imports no torch."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from captioner.decoding.rules import Array, Constraints
from captioner.decoding.search import Advanced, StepChoices
from captioner.errors import INSTALL, UserError
from captioner.model_folders import GRAPHS, WEIGHTS
from captioner.onnx.stored_weights import StoredWeights
from captioner.text.vocabulary import Vocabulary

ENCODER, START, STEP = GRAPHS
WEIGHTS_DIGEST, MAP_SHAPE = "weights", "map_shape"  # Keys of a graph's metadata.
NEXT = "next_"  # Begins the names of a step's outputs that are inputs of the next step.
MEMORY = "memory"  # Begins the names of arrays (B, ...) that the rows of a source share.


def default_threads() -> int:
    """The threads of torch on a CPU: `OMP_NUM_THREADS`, or one for each core."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() and int(threads) else os.cpu_count() or 1


def open_graph(path: Path, threads: int) -> Any:
    """A graph, ready to run on the CPU, on so many threads."""
    if not os.path.isfile(path):
        raise UserError(f"{path} does not exist")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # Fatal only: errors are raised as well.
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many types of errors for damaged files.
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None


def open_graphs(
    folder: Path, names: Sequence[str], threads: int
) -> tuple[list[Any], StoredWeights | None]:
    """Graphs of a model folder, and its weights; None where graphs hold theirs.

    Refuses graphs of other weights.
    """
    has_weights = os.path.isfile(folder / WEIGHTS)
    with ThreadPoolExecutor(1) as reader:  # Hashing the weights takes as long as opening a graph.
        reading = reader.submit(StoredWeights, folder / WEIGHTS) if has_weights else None
        graphs = [open_graph(folder / name, threads) for name in names]
        weights = reading.result() if reading else None
    digests = {metadata(graph).get(WEIGHTS_DIGEST) for graph in graphs}
    if digests == {None}:
        return graphs, None
    if weights is None or digests != {weights.digest}:
        raise UserError(f"the graphs in {folder} are of other weights; train or export it again")
    return graphs, weights


def metadata(graph: Any) -> dict[str, str]:
    """The metadata of a graph."""
    return dict(graph.get_modelmeta().custom_metadata_map)


class GraphStepper:
    """The `Stepper` of two graphs, whose inputs and outputs `captioner.onnx.export` describes.

    inputs: of `start`. rules: of `search_inputs`.
    """

    drops_finished = True

    def __init__(
        self, start: Any, step: Any, inputs: dict[str, Array], rules: Mapping[str, Array]
    ) -> None:
        self._step = step
        names = [output.name for output in start.get_outputs()]
        self._state = dict(zip(names, start.run(None, inputs), strict=True))
        self._inputs = {item.name: item for item in step.get_inputs()}
        self._rules = {name: rules[name] for name in rules if name in self._inputs}
        self._outputs = [output.name for output in step.get_outputs()]
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
        for name, item in self._inputs.items():
            if name not in first and name not in self._rules:
                shape = [0 if isinstance(size, str) else size for size in item.shape]
                shape[0] = self.batch_size
                if not name.startswith(MEMORY):
                    shape[1] = 1  # One row a source.
                first[name] = np.zeros(shape, bool if item.type == "tensor(bool)" else np.float32)
        return first

    def advance(self, beam: dict[str, Array]) -> Advanced:
        """Extend every row by a token."""
        arrays = self._step.run(None, {**beam, **self._rules})
        outputs = dict(zip(self._outputs, arrays, strict=True))
        choices = StepChoices(*(outputs[name] for name in StepChoices._fields))
        beam = {name: outputs.get(NEXT + name, array) for name, array in beam.items()}
        return Advanced(beam, choices, outputs["live_counts"])

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


def search_inputs(constraints: Constraints, vocabulary_size: int) -> dict[str, Array]:
    """What a step takes of a search: its rules, and the beam's size and normalisation.

    Raises `UserError` for options of sampling.
    """
    search = constraints.search
    if search.sample:
        raise UserError(f"sampling needs torch ({INSTALL}) and engine 'torch'")
    return {
        **constraints.rules(vocabulary_size).inputs(),
        "width": np.zeros(search.beam, np.float32),  # A graph takes its size.
        "length_normalisation": np.array(search.length_normalisation, np.float32),
    }
