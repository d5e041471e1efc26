"""Translates by ONNX graphs, as a `Translator` does, without torch."""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from captioner.decoding.options import TranslationSearch
from captioner.decoding.rules import Constraints
from captioner.decoding.search import Hypothesis, search_hypotheses
from captioner.errors import INSTALL, UserError
from captioner.model_folders import complete_folder, read_card
from captioner.onnx.graphs import (
    START,
    STEP,
    GraphStepper,
    default_threads,
    graph_errors,
    open_graphs,
    search_inputs,
)
from captioner.text.vocabulary import Vocabulary
from captioner.translate.config import read_config
from captioner.translate.sentences import SentenceTranslator, load_vocabularies


class OnnxTranslator(SentenceTranslator):
    """Translates as `Translator` does; see `captioner.load_translator`. It draws no samples."""

    attends = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder = complete_folder(folder)
        config = read_config(folder)
        self.source, self.target = load_vocabularies(folder, config.joint_vocabulary)
        self.maximum_source_length = config.maximum_source_length
        self.search = config.search
        self.capitals = config.capitals
        self.card = read_card(folder)
        graphs, _ = open_graphs(folder, [START, STEP], default_threads(), config.files)
        self._start, self._step = graphs

    def __repr__(self) -> str:
        sizes = f"{len(self.source):,} source and {len(self.target):,} target tokens"
        return f"OnnxTranslator({sizes})"

    def __reduce__(self) -> tuple[Any, ...]:
        """The folder is pickled, not the graphs: every process loads them itself."""
        return OnnxTranslator, (self.folder.resolve(),), {"search": self.search}

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """Raises `UserError` for another layer or head than the model's: a graph has one."""
        if layer is not None or head is not None:
            raise UserError(f"another layer or head needs torch ({INSTALL}) and engine 'torch'")

    def find_hypotheses(
        self,
        sources: list[list[int]],
        search: TranslationSearch,
        forbidden: tuple[int, ...],
        generator: Any,
    ) -> list[list[Hypothesis]]:
        """See `SentenceTranslator`. Raises `UserError` for options of sampling."""
        rows = [[*source, Vocabulary.end] for source in sources]
        lengths = np.array(list(map(len, rows)))  # (B,)
        mask = np.arange(lengths.max()) < lengths[:, None]  # (B, S)
        tokens = np.full(mask.shape, Vocabulary.pad)  # (B, S)
        tokens[mask] = np.concatenate(rows)
        rules = search_inputs(Constraints(search, forbidden), len(self.target))
        inputs = {"tokens": tokens, "mask": mask}
        with graph_errors(self.folder):
            stepper = GraphStepper(self._start, self._step, inputs, rules)
            return search_hypotheses(stepper, search.maximum_length, search.coverage_penalty, mask)
