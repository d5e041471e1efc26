"""Captions by ONNX graphs, on a CPU in float32, without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from captioner.arrays import Array
from captioner.backends.graphs import (
    MAP_SHAPE,
    Graph,
    GraphStepper,
    default_threads,
    graph_errors,
    open_graphs,
    search_graphs,
    search_inputs,
)
from captioner.backends.protocol import Sentence, Words
from captioner.backends.vocabulary_search import VocabularyCaptions
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import Constraints
from captioner.decoding.search import Hypothesis
from captioner.errors import GraphError
from captioner.model_folders import CONFIG, GRAPHS, VOCABULARY, ModelFolder
from captioner.models.caption_config import CaptionNetworksConfig
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing

_SUM_TOLERANCE = 0.01  # A map sums to 1; drawing refuses others.
_CHUNK = 2  # Photos that are encoded at a time, whose feature maps a CPU's caches hold.


@dataclass(repr=False, eq=False)
class GraphCaptions(VocabularyCaptions):
    """The `CaptionBackend` of a folder's graphs. threads: of each graph.

    graphs: encoder, start and step, by their number of threads. shape: L, D.
    """

    engine: ClassVar[str] = "graphs"
    can_sample: ClassVar[bool] = False
    device: ClassVar[None] = None

    folder: ModelFolder
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    map_shape: tuple[int, int]
    shape: tuple[int, int]
    threads: int
    graphs: dict[int, list[Graph]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{len(self.vocabulary):,} words, on cpu"

    def __reduce__(self) -> tuple[object, ...]:
        """The folder is pickled, not the graphs: every process opens them, if they are the same."""
        return open_captions, (self.folder,)

    def for_workers(self, workers: int) -> GraphCaptions:
        """See `CaptionBackend`. Each worker has its share of the threads."""
        threads = max(1, self.threads // max(1, workers))
        if threads not in self.graphs:  # A graph keeps the threads that it was opened with.
            weights = self.folder.tensors()
            self.graphs[threads] = open_graphs(self.folder, GRAPHS, threads, weights)
        return replace(self, threads=threads)

    def encode(self, pixels: Array) -> Array:
        encoder = self.graphs[self.threads][0]
        normalised = self.preprocessing.normalise(pixels)  # (B, 3, size, size)
        maps = []
        with graph_errors(self.folder.path):
            for first in range(0, len(pixels), _CHUNK):
                inputs = {"pixels": normalised[first : first + _CHUNK]}
                maps.append(encoder.run(inputs)["annotations"])
            return np.concatenate(maps).reshape(len(pixels), *self.shape)  # (B, L, D)

    def search(
        self, annotations: Array, search: SearchOptions, generator: None = None
    ) -> list[list[Sentence]]:
        with graph_errors(self.folder.path):
            hypotheses = self._search(annotations, self.constraints(search))
        return [list(map(self.in_words, of_photo)) for of_photo in hypotheses]

    def _search(self, annotations: Array, constraints: Constraints) -> list[list[Hypothesis]]:
        rules = search_inputs(constraints, len(self.vocabulary))
        _, start, step = self.graphs[self.threads]
        inputs = {"annotations": np.asarray(annotations, np.float32)}
        stepper = GraphStepper(start, step, inputs, rules)
        length, _ = self.shape
        longest = constraints.search.maximum_length
        found = search_graphs(stepper, len(self.vocabulary), length, longest)
        sums = [each.attention.sum(axis=1) for of_photo in found for each in of_photo]  # (T,)
        if (abs(np.concatenate(sums) - 1) > _SUM_TOLERANCE).any():
            raise ValueError("maps that are no weights")
        return found

    def teacher_forced(self, annotations: Array, captions: Sequence[Words]) -> list[Sentence]:
        """See `CaptionBackend`. A greedy search whose given beginning is the caption."""
        given = zip(np.asarray(annotations, np.float32), captions, strict=True)
        with graph_errors(self.folder.path):
            return [self._forced(vectors[None], words) for vectors, words in given]

    def _forced(self, annotations: Array, words: Words) -> Sentence:
        """Annotation vectors (1, L, D) and the T words of a caption -> their scores."""
        begin, length = tuple(self.vocabulary.encode(words)), len(words)
        exact = SearchOptions(beam=1, minimum_length=length, maximum_length=length)
        ((found,),) = self._search(annotations, Constraints(exact, begin=begin))
        if len(found.tokens) != length:
            raise ValueError("a step that ignores what it is given")
        return Sentence(list(words), found.token_log_probabilities, found.attention)


def open_captions(folder: ModelFolder) -> GraphCaptions:
    """The backend of a model folder with graphs, which are of its config and vocabulary."""
    files, weights, threads = folder.files, folder.tensors(), default_threads()
    vocabulary = Vocabulary.load(files / VOCABULARY)
    graphs = open_graphs(folder, GRAPHS, threads, weights)
    config = folder.read("captioner", CaptionNetworksConfig)
    with graph_errors(files):
        encoder, _, step = graphs
        rows, columns = map(int, json.loads(encoder.metadata[MAP_SHAPE]))
        shape = rows * columns, config.decoder.memory_size  # L, D
        sizes = encoder.inputs["pixels"].shape[-1], step.inputs["classes"].shape[0]
        annotations = tuple(encoder.outputs["annotations"].shape[1:])
    expected = config.preprocessing.size, len(vocabulary), shape
    if (*sizes, annotations) != expected or rows < 1:
        raise GraphError(f"{files}: the graphs are of another {CONFIG} or {VOCABULARY}")
    return GraphCaptions(
        folder=folder,
        vocabulary=vocabulary,
        preprocessing=config.preprocessing,
        map_shape=(rows, columns),
        shape=shape,
        threads=threads,
        graphs={threads: graphs},
    )
