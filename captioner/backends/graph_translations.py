"""Translations by ONNX graphs, on a CPU in float32, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from captioner.backends.graphs import (
    START,
    STEP,
    Graph,
    GraphStepper,
    default_threads,
    graph_errors,
    open_graphs,
    search_graphs,
    search_inputs,
)
from captioner.backends.protocol import translation_constraints
from captioner.decoding.options import TranslationSearch
from captioner.decoding.search import Hypothesis
from captioner.errors import INSTALL, UserError
from captioner.model_folders import ModelFolder
from captioner.models.translation_config import (
    NO_HEADS,
    TranslationModelConfig,
    TranslationNetworksConfig,
)
from captioner.text import SentenceVocabulary
from captioner.text.sentences import load_vocabularies
from captioner.text.vocabulary import Vocabulary


@dataclass(repr=False, eq=False)
class GraphTranslations:
    """The `TranslationBackend` of a folder's graphs."""

    engine: ClassVar[str] = "graphs"
    can_sample: ClassVar[bool] = False
    lacks: ClassVar[tuple[str, ...]] = ()
    device: ClassVar[None] = None

    folder: ModelFolder
    config: TranslationModelConfig
    source: SentenceVocabulary
    target: SentenceVocabulary
    start: Graph
    step: Graph

    def __repr__(self) -> str:
        return f"{self.config.family} on cpu"

    def __reduce__(self) -> tuple[object, ...]:
        """The folder is pickled, not the graphs: every process opens them, if they are the same."""
        return open_translations, (self.folder,)

    @property
    def attends(self) -> bool:
        return self.config.attends

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """Raises `UserError` for another layer or head than the model's: a graph has one."""
        if layer is not None or head is not None:
            if self.config.transformer is None:
                raise UserError(NO_HEADS)
            raise UserError(f"another layer or head needs torch ({INSTALL}) and engine 'torch'")

    def search(
        self, sources: list[list[int]], search: TranslationSearch, generator: None = None
    ) -> list[list[Hypothesis]]:
        rows = [[*source, Vocabulary.end] for source in sources]
        lengths = np.array(list(map(len, rows)))  # (B,)
        mask = np.arange(lengths.max()) < lengths[:, None]  # (B, S)
        tokens = np.full(mask.shape, Vocabulary.pad)  # (B, S)
        tokens[mask] = np.concatenate(rows)
        rules = search_inputs(translation_constraints(search), len(self.target))
        inputs = {"tokens": tokens, "mask": mask}
        with graph_errors(self.folder.path):
            stepper = GraphStepper(self.start, self.step, inputs, rules)
            longest, penalty = search.maximum_length, search.coverage_penalty
            covered, length = (mask, mask.shape[1]) if self.attends else (None, None)
            return search_graphs(stepper, len(self.target), length, longest, penalty, covered)


def open_translations(folder: ModelFolder) -> GraphTranslations:
    """The backend of a model folder with graphs."""
    start, step = open_graphs(folder, [START, STEP], default_threads(), folder.tensors())
    config = folder.read("translator", TranslationNetworksConfig)
    source, target = load_vocabularies(folder.files, config.joint_vocabulary)
    return GraphTranslations(folder, config.model, source, target, start, step)
