"""The public translator: sentences to translations with alignments; saved as a folder.

Files, without pickle: `model.safetensors`, `config.json` (sizes, search), `README.md` (model card),
and `vocabulary.json` (joint) or `source.json` and `target.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from captioner import model_folders
from captioner.decoding.loop import decode, make_generator, make_strategy
from captioner.decoding.options import TranslationSearch
from captioner.decoding.rules import Constraints
from captioner.decoding.search import Hypothesis
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.files import write_json, write_text
from captioner.schema import to_mapping
from captioner.text import SentenceVocabulary
from captioner.text.languages import Capitals
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import Vocabulary
from captioner.translate import recurrent_models as recurrent
from captioner.translate.config import TranslationModelConfig, TranslatorConfig, read_config
from captioner.translate.model import TranslationModel
from captioner.translate.sentences import (
    SentenceTranslator,
    load_vocabularies,
    save_vocabularies,
)
from captioner.translate.transformer import Transformer
from captioner.weight_files import load_weights, named_tensors, write_tensors

MODELS: dict[str, Callable[..., TranslationModel]] = {
    "sequence_to_sequence": recurrent.SequenceToSequence,
    "bahdanau": recurrent.Bahdanau,
    "luong": recurrent.Luong,
    "gnmt": recurrent.GNMT,
    "transformer": Transformer,
}


@dataclass(repr=False, eq=False)
class Translator(SentenceTranslator):
    """A translation model with its vocabularies, made by `captioner.load_translator`.

    config: of `model`. precision: of the matrix products. Other fields: of `SentenceTranslator`.
    """

    config: TranslationModelConfig
    model: TranslationModel
    source: SentenceVocabulary
    target: SentenceVocabulary
    maximum_source_length: int = 200
    search: TranslationSearch = field(default_factory=TranslationSearch)
    card: str = ""
    capitals: Capitals = "keep"
    precision: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        self.model.eval()

    def __repr__(self) -> str:
        sizes = f"{len(self.source):,} source and {len(self.target):,} target tokens"
        return f"Translator({type(self.model).__name__}, {sizes}, on {self.device})"

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.embeddings.target_embedding.weight.device

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and so alignments."""
        return self.config.sequence_to_sequence is None

    def to(self, device: torch.device | str) -> Translator:
        """Move the weights to a device, in place; return the translator."""
        self.model.to(device)
        return self

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """See `SentenceTranslator`."""
        chosen: dict[str, Any] = {} if layer is None else {"alignment_layer": layer}
        if head is not None:
            chosen["alignment_head"] = None if head == "mean" else head
        if isinstance(self.model, Transformer):
            self.model.config = self.model.config.replace(**chosen)
        elif chosen:
            raise UserError("an alignment layer or head needs a Transformer, which this is not")

    def new_generator(self, search: TranslationSearch) -> torch.Generator:
        """The generator of samples."""
        return make_generator(search, self.device)

    @torch.no_grad()
    def find_hypotheses(
        self,
        sources: list[list[int]],
        search: TranslationSearch,
        forbidden: tuple[int, ...],
        generator: torch.Generator,
    ) -> list[list[Hypothesis]]:
        """See `SentenceTranslator`."""
        tokens, mask = collate_sources(sources)
        with autocast(self.device, self.precision):
            return decode(
                self.model,
                self.model.remember(tokens.to(self.device), mask),
                start=Vocabulary.start,
                end=Vocabulary.end,
                strategy=make_strategy(search, generator),
                constraints=Constraints(search, forbidden),
                length_normalisation=search.length_normalisation,
                coverage_penalty=search.coverage_penalty,
            )


def save_translator(
    translator: Translator, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a translator to a folder; after a stop, the old one loads or the new one.

    dtype: type of stored floating-point weights; computation is in float32.
    """
    config = TranslatorConfig(
        format=model_folders.FORMATS["translator"],
        model=translator.config,
        joint_vocabulary=translator.source is translator.target,
        maximum_source_length=translator.maximum_source_length,
        search=translator.search,
        capitals=translator.capitals,
    )
    tensors = named_tensors({"model": translator.model}, dtype)
    with model_folders.saving(Path(folder)) as files:
        write_tensors(files / model_folders.WEIGHTS, tensors)
        save_vocabularies(files, translator.source, translator.target)
        write_json(files / model_folders.CONFIG, to_mapping(config))
        if translator.card:
            write_text(files / model_folders.CARD, translator.card)


def load_translator(folder: str | Path, device: torch.device | str = "cpu") -> Translator:
    """Load a translator from a folder that `save_translator` wrote."""
    folder = model_folders.complete_folder(folder)
    config = read_config(folder)
    model_folders.check_digests(folder, config.files)
    source, target = load_vocabularies(folder, config.joint_vocabulary)
    try:
        with torch.device("meta"):  # Allocates no memory and draws no initial weights.
            model = config.model.make(len(source), len(target))
    except UserError as error:
        raise UserError(f"{folder / model_folders.CONFIG}: {error}") from None
    weights = folder / model_folders.WEIGHTS
    load_weights(nn.ModuleDict({"model": model}), weights, digest=config.files.get(weights.name))
    translator = Translator(
        config.model,
        model,
        source,
        target,
        maximum_source_length=config.maximum_source_length,
        search=config.search,
        card=model_folders.read_card(folder),
        capitals=config.capitals,
    )
    return translator.to(device)
