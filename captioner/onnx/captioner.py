"""Captions photos by ONNX graphs, as a `Captioner` does, without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from captioner.caption.caption import Caption
from captioner.caption.config import read_config
from captioner.caption.photos import PhotoCaptioner
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import Array, ngram_keys
from captioner.decoding.search import Hypothesis, search_hypotheses
from captioner.errors import GraphError, UserError
from captioner.files import read_bytes
from captioner.model_folders import (
    CONFIG,
    GRAPHS,
    NGRAMS,
    VOCABULARY,
    complete_folder,
    read_card,
)
from captioner.onnx.graphs import (
    MAP_SHAPE,
    GraphStepper,
    default_threads,
    graph_errors,
    open_graphs,
    search_inputs,
)
from captioner.text.vocabulary import Vocabulary

_CHUNK = 2  # Photos that are encoded at a time, whose feature maps a CPU's caches hold.


class OnnxCaptioner(PhotoCaptioner):
    """Captions photos as `Captioner` does; see `captioner.load`. It draws no samples."""

    can_sample = False
    threads = 1  # Of each graph.
    map_shape = (0, 0)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.threads = default_threads()
        folder = complete_folder(folder)
        config = read_config(folder)
        self.preprocessing = config.preprocessing
        self.search = config.search
        self.confidence = config.confidence
        self.card = read_card(folder)
        self.vocabulary = vocabulary = Vocabulary.load(folder / VOCABULARY)
        self._digests = config.files
        graphs, weights = open_graphs(folder, GRAPHS, self.threads, self._digests)
        self._graphs = {self.threads: graphs}  # By the threads of each graph.
        with graph_errors(folder):
            encoder, _, step = graphs
            rows, columns = map(int, json.loads(encoder.metadata[MAP_SHAPE]))
            self.map_shape = rows, columns
            self._shape = rows * columns, config.decoder.memory_size  # L, D
            if weights is None and os.path.isfile(folder / NGRAMS):
                self.ngrams = np.frombuffer(read_bytes(folder / NGRAMS, "n-grams"), "<i8")
            elif weights and "ngrams" in weights.tensors:
                words = list(weights.values("ngrams").astype(np.int64).T)
                self.ngrams = np.sort(ngram_keys(words, len(vocabulary)))  # (N, ORDER) -> (N,)
            sizes = encoder.inputs["pixels"].shape[-1], step.inputs["forbidden"].shape[0]
            annotations = tuple(encoder.outputs["annotations"].shape[1:])
        expected = self.preprocessing.size, len(vocabulary), self._shape
        if (*sizes, annotations) != expected or rows < 1:
            raise GraphError(f"{folder}: the graphs are of another {CONFIG} or vocabulary.json")
        if "ngrams" in step.inputs and self.ngrams is None:
            raise UserError(f"{folder / NGRAMS} does not exist; export the captioner again")

    def __repr__(self) -> str:
        rows, columns = self.map_shape
        words = f"{len(self.vocabulary):,} words"
        return f"OnnxCaptioner({words}, maps of {rows}x{columns})"

    def __reduce__(self) -> tuple[Any, ...]:
        """The folder is pickled, not the graphs: every process loads them itself."""
        names = ("search", "confidence", "load_translation")
        state = {name: getattr(self, name) for name in names}
        return OnnxCaptioner, (self.folder.resolve(),), state

    def for_workers(self, workers: int) -> OnnxCaptioner:
        """See `PhotoCaptioner`. Each worker has its share of the threads."""
        threads = max(1, self.threads // max(1, workers))
        if threads not in self._graphs:  # A graph keeps the threads that it was opened with.
            folder = complete_folder(self.folder)
            if read_config(folder).files != self._digests:
                raise UserError(f"the graphs in {folder} have changed; load the model again")
            self._graphs[threads], _ = open_graphs(folder, GRAPHS, threads, self._digests)
        captioner = OnnxCaptioner.__new__(OnnxCaptioner)
        captioner.__dict__ = {**self.__dict__, "threads": threads}
        return captioner

    def encode(self, pixels: Array) -> Array:
        encoder = self._graphs[self.threads][0]
        chunks = [pixels[first : first + _CHUNK] for first in range(0, len(pixels), _CHUNK)]
        with graph_errors(self.folder):
            maps = [encoder.run({"pixels": chunk})["annotations"] for chunk in chunks]
            return np.concatenate(maps).reshape(len(pixels), *self._shape)

    def caption_annotations(self, *arguments: Any, **options: Any) -> list[Caption]:
        with graph_errors(self.folder):
            return super().caption_annotations(*arguments, **options)

    def find_hypotheses(
        self, annotations: Array, search: SearchOptions, generator: Any = None
    ) -> list[list[Hypothesis]]:
        """See `PhotoCaptioner`. Raises `UserError` for options of sampling."""
        rules = search_inputs(self.constraints(search), len(self.vocabulary))
        _, start, step = self._graphs[self.threads]
        stepper = GraphStepper(start, step, {"annotations": annotations}, rules)
        return search_hypotheses(stepper, search.maximum_length)
