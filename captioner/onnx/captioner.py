"""Captions photos by ONNX graphs, as a `Captioner` does, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from captioner.caption.photos import BaseModelConfig, PhotoCaptioner
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import Array, ngram_keys
from captioner.decoding.search import Hypothesis, search_hypotheses
from captioner.errors import UserError
from captioner.model_folders import (
    CONFIG,
    GRAPHS,
    NGRAMS,
    VOCABULARY,
    complete_folder,
    read_card,
    read_model_config,
)
from captioner.onnx.graphs import (
    MAP_SHAPE,
    GraphStepper,
    default_threads,
    metadata,
    open_graph,
    open_graphs,
    search_inputs,
)
from captioner.schema import from_mapping
from captioner.text.vocabulary import Vocabulary

_CHUNK = 2  # Photos that are encoded at a time, whose feature maps a CPU's caches hold.


class OnnxCaptioner(PhotoCaptioner):
    """Captions photos as `Captioner` does; see `captioner.load`. It draws no samples."""

    can_sample = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = default_threads()
        folder = complete_folder(folder)
        path = folder / CONFIG
        config = from_mapping(BaseModelConfig, read_model_config(folder, "captioner"), str(path))
        self.preprocessing = config.preprocessing
        self.search = config.search
        self.confidence = config.confidence
        self.card = read_card(folder)
        self.vocabulary = vocabulary = Vocabulary.load(folder / VOCABULARY)
        graphs, weights = open_graphs(folder, GRAPHS, self._threads)
        self._graphs = {self._threads: graphs}  # By the threads of each graph.
        rows, columns = json.loads(metadata(graphs[0])[MAP_SHAPE])
        self._map_shape = int(rows), int(columns)
        if weights is None:
            self.ngrams = _exported_ngrams(folder)
        elif (ngrams := weights.get("ngrams")) is not None:
            columns = list(ngrams.astype(np.int64).T)
            self.ngrams = np.sort(ngram_keys(columns, len(vocabulary)))  # (N, ORDER) -> (N,)
        shapes = {item.name: item.shape for graph in graphs for item in graph.get_inputs()}
        sizes = shapes["pixels"][-1], shapes["forbidden"][0]
        if sizes != (self.preprocessing.size, len(vocabulary)):
            raise UserError(f"{folder}: the graphs are of another {CONFIG} or vocabulary.json")
        if "ngrams" in shapes and self.ngrams is None:
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

    @property
    def threads(self) -> int:
        """See `PhotoCaptioner`."""
        return self._threads

    def for_workers(self, workers: int) -> OnnxCaptioner:
        """See `PhotoCaptioner`. Each worker has its share of the threads."""
        threads = max(1, self.threads // max(1, workers))
        if threads not in self._graphs:  # A graph keeps the threads that it was opened with.
            folder = complete_folder(self.folder)
            graphs = [open_graph(folder / name, threads) for name in GRAPHS]
            if list(map(metadata, graphs)) != list(map(metadata, self._graphs[self._threads])):
                raise UserError(f"the graphs in {folder} have changed; load the model again")
            self._graphs[threads] = graphs
        captioner = OnnxCaptioner.__new__(OnnxCaptioner)
        captioner.__dict__ = {**self.__dict__, "_threads": threads}
        return captioner

    @property
    def map_shape(self) -> tuple[int, int]:
        """See `PhotoCaptioner`."""
        return self._map_shape

    def encode(self, pixels: Array) -> Array:
        """See `PhotoCaptioner`."""
        encoder = self._graphs[self._threads][0]
        chunks = [pixels[first : first + _CHUNK] for first in range(0, len(pixels), _CHUNK)]
        return np.concatenate([encoder.run(None, {"pixels": chunk})[0] for chunk in chunks])

    def find_hypotheses(
        self, annotations: Array, search: SearchOptions, generator: Any = None
    ) -> list[list[Hypothesis]]:
        """See `PhotoCaptioner`. Raises `UserError` for options of sampling."""
        rules = search_inputs(self.constraints(search), len(self.vocabulary))
        _, start, step = self._graphs[self._threads]
        stepper = GraphStepper(start, step, {"annotations": annotations}, rules)
        return search_hypotheses(stepper, search.maximum_length)


def _exported_ngrams(folder: Path) -> Array | None:
    """Read the keys (N,) of the n-grams of an exported folder; None without them."""
    path = folder / NGRAMS
    if not path.is_file():
        return None
    try:
        return np.frombuffer(path.read_bytes(), "<i8").astype(np.int64)
    except (OSError, ValueError):
        raise UserError(f"{path} is not there whole; export the captioner again") from None
