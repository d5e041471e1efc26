"""Translations by torch: a translation model, to train, to save and to compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from captioner import cpu
from captioner.arrays import Generator
from captioner.backends.protocol import translation_constraints
from captioner.decoding.loop import decode, make_strategy
from captioner.decoding.options import TranslationSearch
from captioner.decoding.search import Hypothesis
from captioner.devices import autocast, choose_device, choose_precision
from captioner.errors import UserError
from captioner.model_folders import CONFIG, WEIGHTS, ModelFolder
from captioner.models import recurrent_translators as recurrent
from captioner.models.transformer import Transformer
from captioner.models.translation_config import (
    NO_HEADS,
    TranslationModelConfig,
    TranslationNetworksConfig,
)
from captioner.models.translation_model import TranslationModel
from captioner.module_weights import load_weights
from captioner.text import SentenceVocabulary
from captioner.text.sentences import load_vocabularies
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import Vocabulary


@dataclass(repr=False, eq=False)
class TorchTranslations:
    """The `TranslationBackend` of a model. config: of `model`. precision: of matrix products."""

    engine: ClassVar[str] = "torch"
    can_sample: ClassVar[bool] = True
    lacks: ClassVar[tuple[str, ...]] = ()

    config: TranslationModelConfig
    model: TranslationModel
    source: SentenceVocabulary
    target: SentenceVocabulary
    precision: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self.model.eval()

    def __repr__(self) -> str:
        return f"{self.config.family} on {self.device}"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.embeddings.target_embedding.weight.device

    @property
    def attends(self) -> bool:
        return self.config.attends

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        chosen: dict[str, object] = {} if layer is None else {"alignment_layer": layer}
        if head is not None:
            chosen["alignment_head"] = None if head == "mean" else head
        if isinstance(self.model, Transformer):
            self.model.config = self.model.config.replace(**chosen)
            self.config = self.config.replace(transformer=self.model.config)
        elif chosen:
            raise UserError(NO_HEADS)

    @torch.no_grad()
    def search(
        self, sources: list[list[int]], search: TranslationSearch, generator: Generator = None
    ) -> list[list[Hypothesis]]:
        tokens, mask = collate_sources(sources)
        with autocast(self.device, self.precision):
            return decode(
                self.model,
                self.model.remember(tokens.to(self.device), mask),
                start=Vocabulary.start,
                end=Vocabulary.end,
                strategy=make_strategy(search, generator),
                constraints=translation_constraints(search),
                length_normalisation=search.length_normalisation,
                coverage_penalty=search.coverage_penalty,
            )


_MODELS: dict[str, Callable[..., TranslationModel]] = {
    "sequence_to_sequence": recurrent.SequenceToSequence,
    "bahdanau": recurrent.Bahdanau,
    "luong": recurrent.Luong,
    "gnmt": recurrent.GNMT,
    "transformer": Transformer,
}
"""By the field of `TranslationModelConfig`."""


def make_model(
    config: TranslationModelConfig, source_size: int, target_size: int
) -> TranslationModel:
    """The model, with weights drawn from torch's generator, for so many tokens on each side."""
    return _MODELS[config.family](getattr(config, config.family), source_size, target_size)


def load_translation_model(folder: ModelFolder) -> TorchTranslations:
    """The model of a folder on the CPU, to train or to compute."""
    config = folder.read("translator", TranslationNetworksConfig)
    folder.check()
    source, target = load_vocabularies(folder.files, config.joint_vocabulary)
    try:
        with torch.device("meta"):  # Allocates no memory and draws no initial weights.
            model = make_model(config.model, len(source), len(target))
    except UserError as error:
        raise UserError(f"{folder.files / CONFIG}: {error}") from None
    weights = folder.files / WEIGHTS
    load_weights(nn.ModuleDict({"model": model}), weights, folder.digests.get(WEIGHTS))
    return TorchTranslations(config.model, model, source, target)


def open_translations(folder: ModelFolder, device: str, precision: str) -> TorchTranslations:
    """The backend of a model folder, for inference."""
    backend = load_translation_model(folder)
    backend.model.to(choose_device(device))
    backend.precision = choose_precision(precision)
    if backend.precision is torch.float32:
        backend.model.embeddings.pack()
        cpu.pack(backend.model)
    return backend
