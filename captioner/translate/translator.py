"""The public translator: sentences to translations with alignments; saved as a folder.

Files, without pickle: `model.safetensors`, `config.json` (sizes, search), `README.md` (model card),
and `vocabulary.json` (joint) or `source.json` and `target.json`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn
from typing_extensions import Self

from captioner import model_folders
from captioner.decoding.loop import decode
from captioner.decoding.options import TranslationSearch
from captioner.decoding.search import Hypothesis
from captioner.devices import autocast, choose_device
from captioner.errors import UserError
from captioner.files import read_json, write_json, write_text
from captioner.outcomes import outcomes_of, shape_as_given
from captioner.schema import Config, Count, from_mapping, to_mapping
from captioner.text import SubwordVocabulary, TextVocabulary, WordVocabulary
from captioner.text.languages import Capitals, as_sentence, unescape_entities
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary, Word, without_joiners
from captioner.translate import recurrent_models as recurrent
from captioner.translate.model import TranslationModel
from captioner.translate.transformer import Transformer, TransformerConfig
from captioner.translate.translation import Translation
from captioner.weight_files import load_weights, named_tensors, write_tensors

_Search = TranslationSearch | None
_END = Word(SPECIAL_WORDS[Vocabulary.end], 1)
_EMPTY = Translation("", (_END.text,), (), 0.0, (), np.empty((0, 1), np.float32), (_END,), ())


class TranslationModelConfig(Config):
    """A translation model: exactly one of the five families, with its config."""

    sequence_to_sequence: recurrent.SequenceToSequenceConfig | None = Field(
        None, description="without attention (Sutskever et al. 2014)"
    )
    bahdanau: recurrent.BahdanauConfig | None = Field(
        None, description="additive attention (Bahdanau 2014)"
    )
    luong: recurrent.LuongConfig | None = Field(
        None, description="global or local attention (Luong 2015)"
    )
    gnmt: recurrent.GNMTConfig | None = Field(None, description="deep stacks (Wu et al. 2016)")
    transformer: TransformerConfig | None = Field(None, description="Vaswani et al. 2017")

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [name for name, config in self if config is not None]
        if len(names) != 1:
            listed = ", ".join(names) or "none"
            raise ValueError(f"one model of {', '.join(_MODELS)} should be given, found {listed}")
        return self

    def make(self, source_size: int, target_size: int) -> TranslationModel:
        """The model, with weights drawn from torch's generator, for so many tokens on each side."""
        name, config = next((name, config) for name, config in self if config is not None)
        return _MODELS[name](config, source_size, target_size)


_MODELS: dict[str, Callable[..., TranslationModel]] = {
    "sequence_to_sequence": recurrent.SequenceToSequence,
    "bahdanau": recurrent.Bahdanau,
    "luong": recurrent.Luong,
    "gnmt": recurrent.GNMT,
    "transformer": Transformer,
}


class _Source(NamedTuple):
    """A sentence to translate: its tokens, how many were cut, and whether it was in upper case."""

    tokens: list[str]
    lost: int
    is_upper: bool


@dataclass(repr=False, eq=False)
class Translator:
    """A translation model with its vocabularies, made by `captioner.load_translator`.

    config: of `model`. source, target: vocabularies; the same object if joint.
    maximum_source_length: tokens; longer sources are cut with a warning.
    search: default search options. card: text of the model card.
    capitals: which lines are rewritten as sentences, see `as_sentence`; the translation of a line
        in upper case is in upper case too.
    precision: of the matrix products.
    """

    config: TranslationModelConfig
    model: TranslationModel
    source: TextVocabulary
    target: TextVocabulary
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
        """Set the decoder layer and head of a Transformer that alignments come from.

        layer: counted from 0, or from -1 for the last. head: counted from 0, or `mean` of all. None
        keeps it. The coverage penalty and the copying of unknown words use this alignment too.
        """
        chosen: dict[str, Any] = {} if layer is None else {"alignment_layer": layer}
        if head is not None:
            chosen["alignment_head"] = None if head == "mean" else head
        if isinstance(self.model, Transformer):
            self.model.config = self.model.config.replace(**chosen)
        elif chosen:
            raise UserError("an alignment layer or head needs a Transformer, which this is not")

    @overload
    def translate(self, sentences: str, search: _Search = None, **options: Any) -> Translation: ...

    @overload
    def translate(
        self, sentences: Iterator[str], search: _Search = None, **options: Any
    ) -> Iterator[Translation]: ...

    @overload
    def translate(
        self, sentences: Iterable[str], search: _Search = None, **options: Any
    ) -> list[Translation]: ...

    def translate(
        self,
        sentences: Any,
        search: _Search = None,
        *,
        batch_size: int = 32,
        on_error: Literal["raise", "skip"] = "raise",
        **options: Any,
    ) -> Any:
        """Translate a sentence, or sentences in order.

        sentences: a string gives one translation, a list or other collection gives a list, and an
            iterator (such as a generator) gives an iterator, which reads it batch by batch.
        search: in place of the model's own. options: its fields, such as `beam=10`, over it.
        batch_size: sentences decoded together, sorted by length.
        on_error: `raise` raises `UserError` for a sentence that is not a string; `skip` gives a
            `Failed` with the reason in place of its translation.

        Entities of HTML are unescaped. An empty sentence has an empty translation. A sentence that
        is too long is cut with a `UserWarning` that names it; see `Translation.truncated`. A
        translation that reaches the maximum length has `Translation.cut`.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        search = (search or self.search).override(**options)
        if search.copy_unknown and not self.attends:
            raise UserError("copy_unknown needs a model with attention, and this one has none")
        generator = search.generator(self.device)
        is_one = isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable)
        inputs = [sentences] if is_one else sentences
        together = batch_size  # Sentences of an iterator that are read before they are translated.
        if not isinstance(inputs, Iterator):
            inputs = list(inputs)
            together = len(inputs) or 1
        named = ((f"sentence {number}", text) for number, text in enumerate(inputs, start=1))
        compute = partial(self._translate, batch_size, search, generator)
        outcomes = outcomes_of(named, together, self._read, compute)
        return shape_as_given(sentences, is_one, outcomes, on_error)

    def _read(self, name: str, sentence: Any) -> _Source:
        if not isinstance(sentence, str):
            raise UserError(f"{name} is of the type {type(sentence).__name__}, not text")
        text, is_upper = as_sentence(unescape_entities(sentence), self.capitals)
        tokens = self.source.split(text)
        longest = self.maximum_source_length
        lost = max(0, len(tokens) - longest)
        if lost:
            unread = f"{len(tokens):,} tokens, of which the last {lost:,} are not read"
            warnings.warn(f"{name} has {unread}: this model reads {longest:,}", stacklevel=1)
        return _Source(tokens[:longest], lost, is_upper)

    @torch.no_grad()
    def _translate(
        self,
        batch_size: int,
        search: TranslationSearch,
        generator: torch.Generator,
        sources: list[_Source],
    ) -> list[Translation]:
        """Translate batches of similar length; returns translations in the given order."""
        unknown = () if search.copy_unknown else (Vocabulary.unknown,)
        forbidden = (Vocabulary.pad, Vocabulary.start, *unknown)
        order = [index for index, source in enumerate(sources) if source.tokens]
        order.sort(key=lambda index: len(sources[index].tokens))
        translations = [_EMPTY] * len(sources)
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            tokens, mask = collate_sources(
                [self.source.indices(sources[index].tokens) for index in chosen]
            )
            with autocast(self.device, self.precision):
                batch = decode(
                    self.model,
                    self.model.remember(tokens.to(self.device), mask),
                    start=Vocabulary.start,
                    end=Vocabulary.end,
                    strategy=search.strategy(generator),
                    constraints=search.constraints(forbidden=forbidden),
                    length_normalisation=search.length_normalisation,
                    coverage_penalty=search.coverage_penalty,
                )
            for index, hypotheses in zip(chosen, batch, strict=True):
                best, *others = [
                    self._translation(sources[index], hypothesis)
                    for hypothesis in hypotheses[: search.n_best]
                ]
                translations[index] = replace(best, alternatives=tuple(others))
        return translations

    def _translation(self, source: _Source, hypothesis: Hypothesis) -> Translation:
        read = source.tokens
        alignment = hypothesis.attention[:, : len(read) + 1]  # (T, S), without padding
        tokens = self.target.tokens(hypothesis.tokens)
        if self.attends:  # Unknown words are copied from where the model looks, but the end.
            for step, index in enumerate(hypothesis.tokens):
                if index == Vocabulary.unknown:
                    tokens[step] = read[int(alignment[step, :-1].argmax())]
        case = str.upper if source.is_upper else str
        source_words = (Word(case(text), size) for text, size in self.source.words(read))
        return Translation(
            text=case(self.target.join(tokens)),
            source_tokens=(*without_joiners(read), _END.text),
            tokens=tuple(without_joiners(tokens)),
            log_probability=hypothesis.log_probability,
            token_log_probabilities=tuple(hypothesis.token_log_probabilities[:-1]),
            alignment=alignment if self.attends else alignment[:, :0],
            source_words=(*source_words, _END),
            words=tuple(Word(case(text), size) for text, size in self.target.words(tokens)),
            score=hypothesis.score,
            truncated=source.lost,
            cut=hypothesis.cut,
        )


class TranslatorConfig(Config):
    """The fields of `config.json`; the default of one that was added is what older models mean."""

    format: str
    model: TranslationModelConfig
    joint_vocabulary: bool
    maximum_source_length: Count
    search: TranslationSearch
    capitals: Capitals = "keep"


def save_translator(
    translator: Translator, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a translator to a folder; whenever it is stopped, the old one loads or the new one.

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
    path = folder / model_folders.CONFIG
    weights = folder / model_folders.WEIGHTS
    mapping = model_folders.read_model_config(folder, "translator")
    config = from_mapping(TranslatorConfig, mapping, str(path))
    source, target = load_vocabularies(folder, config.joint_vocabulary)
    try:
        with torch.device("meta"):  # Allocates no memory and draws no initial weights.
            model = config.model.make(len(source), len(target))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    load_weights(nn.ModuleDict({"model": model}), weights)
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


_JOINT = "vocabulary.json"


def save_vocabularies(folder: Path, source: TextVocabulary, target: TextVocabulary) -> None:
    """Write both vocabularies as JSON, atomically; the same object is written once."""
    vocabularies = {"source.json": source, "target.json": target}
    if source is target:
        vocabularies = {_JOINT: source}
    for name, vocabulary in vocabularies.items():
        write_json(folder / name, vocabulary.to_json(), indent=None)


def load_vocabularies(folder: Path, joint: bool) -> tuple[TextVocabulary, TextVocabulary]:
    """Read the source's and the target's vocabulary; joint ones are the same object."""
    source = _load(folder / (_JOINT if joint else "source.json"))
    return source, source if joint else _load(folder / "target.json")


def _load(path: Path) -> TextVocabulary:
    value = read_json(path, "vocabulary")
    where = f"vocabulary {path}"
    for kind in (WordVocabulary, SubwordVocabulary):
        if isinstance(value, dict) and value.get("kind") == kind.kind:
            return kind.from_json(value, where)
    raise UserError(f"{where}: field 'kind' is neither 'words' nor 'subwords'")


def describe_translator(translator: Translator, folder: Path) -> str:
    """Sizes, vocabularies, configuration, search and card's gist of the model in `folder`."""
    joint = ", joint" if translator.source is translator.target else ""
    facts = {
        "source": f"{len(translator.source):,} tokens{joint}",
        "target": f"{len(translator.target):,} tokens{joint}",
        "reads": f"{translator.maximum_source_length:,} tokens at most",
        "runs on": choose_device(),
        "capitals": translator.capitals,
        "parameters": f"{sum(tensor.numel() for tensor in translator.model.parameters()):,}",
    }
    configs = {**dict(translator.config), "search": translator.search}
    sections = {name: to_mapping(config) for name, config in configs.items() if config is not None}
    return model_folders.described(folder, facts, sections, translator.card)
