"""The public translator: sentences to translations with alignments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, overload

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import Self

from captioner.decoding.loop import decode
from captioner.decoding.options import TranslationSearch
from captioner.decoding.protocol import Hypothesis
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.outcomes import read_batches, shape_as_given, with_results
from captioner.schema import Config
from captioner.text import TextVocabulary
from captioner.text.plain_text import Capitals, as_sentence, unescape_entities
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary, Word
from captioner.translate.bahdanau import Bahdanau, BahdanauConfig
from captioner.translate.gnmt import GNMT, GNMTConfig
from captioner.translate.luong import Luong, LuongConfig
from captioner.translate.model import TranslationModel
from captioner.translate.recurrent import SequenceToSequence, SequenceToSequenceConfig
from captioner.translate.transformer import Transformer, TransformerConfig
from captioner.translate.translation import Translation

_Search = TranslationSearch | None
_END = Word(SPECIAL_WORDS[Vocabulary.end], 1)
_EMPTY = Translation("", (_END.text,), (), 0.0, (), torch.empty(0, 1), (_END,), ())


class TranslationModelConfig(Config):
    """A translation model: exactly one of the five families, with its config."""

    sequence_to_sequence: SequenceToSequenceConfig | None = Field(
        None, description="encoder and decoder without attention"
    )
    bahdanau: BahdanauConfig | None = Field(
        None, description="bidirectional encoder, additive attention (Bahdanau et al. 2014)"
    )
    luong: LuongConfig | None = Field(
        None, description="global or local attention on the new state (Luong et al. 2015)"
    )
    gnmt: GNMTConfig | None = Field(
        None, description="deep stacks with residual connections (Wu et al. 2016)"
    )
    transformer: TransformerConfig | None = Field(
        None, description="attention alone (Vaswani et al. 2017)"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        found = [name for name, config in self if config is not None]
        if len(found) != 1:
            known, given = ", ".join(_MODELS), ", ".join(found) or "none"
            raise ValueError(f"one model of {known} should be given, found {given}")
        return self

    def make(self, source_size: int, target_size: int) -> TranslationModel:
        """The model, with weights drawn from torch's generator, for so many tokens on each side."""
        ((name, config),) = [(name, config) for name, config in self if config is not None]
        return _MODELS[name](config, source_size, target_size)


_MODELS: dict[str, Callable[..., TranslationModel]] = {
    "sequence_to_sequence": SequenceToSequence,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "gnmt": GNMT,
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
    capitals: which lines are rewritten as sentences, see `as_sentence`. The translation and
        the words of the alignment of a line in upper case are in upper case too.
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
        (source, target), sizes = self.model.embeddings.sizes, (len(self.source), len(self.target))
        if (source, target) != sizes:
            raise UserError(
                f"the model has {source} source and {target} target tokens, but the vocabularies "
                f"have {sizes[0]} and {sizes[1]}"
            )
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

        layer: counted from 0, or from -1 for the last; None keeps it. head: counted from 0, or
        `mean` of all; None keeps it. The coverage penalty and the copying of unknown words use this
        alignment too.
        """
        if layer is None and head is None:
            return
        if not isinstance(self.model, Transformer):
            raise UserError("an alignment layer or head needs a Transformer, which this is not")
        if isinstance(head, str) and head != "mean":
            raise UserError(f"alignment head {head!r} is neither a number nor mean")
        chosen: dict[str, Any] = {}
        if layer is not None:
            chosen["alignment_layer"] = layer
        if head is not None:
            chosen["alignment_head"] = None if head == "mean" else head
        self.model.config = self.model.config.replace(**chosen)

    @overload
    def translate(
        self, sentences: Any, search: _Search = None, *, on_error: Literal["skip"], **options: Any
    ) -> Any: ...

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
        search: in place of the model's own. batch_size: sentences decoded together, sorted by
            length.
        on_error: `raise` raises `UserError` for a sentence that is not a string; `skip` gives a
            `Failed` with the reason in place of its translation.
        options: fields of `TranslationSearch`, such as `beam=10` or `n_best=3`, over the search.

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
        given = [sentences] if is_one else sentences
        named: Iterable[tuple[str, Any]] = (
            ("the sentence" if is_one else f"sentence {number}", each)
            for number, each in enumerate(given, start=1)
        )
        together = batch_size  # Sentences of an iterator that are read before they are translated.
        if not isinstance(given, Iterator):
            named = list(named)
            together = len(named) or 1
            if on_error == "raise":  # Before any work.
                for name, each in named:
                    _check_text(name, each)
        outcomes = chain.from_iterable(
            with_results(sources, partial(self._in_batches, batch_size, search, generator))
            for sources in read_batches(named, together, self._read)
        )
        return shape_as_given(sentences, is_one, outcomes, on_error)

    def _read(self, name: str, sentence: Any) -> _Source:
        _check_text(name, sentence)
        text, is_upper = as_sentence(unescape_entities(sentence), self.capitals)
        tokens, longest = self.source.split(text), self.maximum_source_length
        lost = max(0, len(tokens) - longest)
        if lost:
            warnings.warn(
                f"{name} has {len(tokens):,} tokens, of which the last {lost:,} are not read: "
                f"this model reads {longest:,}",
                stacklevel=1,
            )
        return _Source(tokens[:longest], lost, is_upper)

    def _in_batches(
        self,
        batch_size: int,
        search: TranslationSearch,
        generator: torch.Generator,
        sources: list[_Source],
    ) -> list[Translation]:
        """Translate batches of similar length; returns translations in the given order."""
        order = [place for place, source in enumerate(sources) if source.tokens]
        order.sort(key=lambda place: len(sources[place].tokens))
        found: dict[int, Translation] = {}
        for first in range(0, len(order), batch_size):
            places = order[first : first + batch_size]
            batch = self._translate([sources[place] for place in places], search, generator)
            found.update(zip(places, batch, strict=True))
        return [found.get(place, _EMPTY) for place in range(len(sources))]

    @torch.no_grad()
    def _translate(
        self, sources: Sequence[_Source], search: TranslationSearch, generator: torch.Generator
    ) -> list[Translation]:
        """Translate one batch."""
        tokens, mask = collate_sources([self.source.indices(each.tokens) for each in sources])
        forbidden = [Vocabulary.pad, Vocabulary.start]
        if not search.copy_unknown:
            forbidden.append(Vocabulary.unknown)
        with autocast(self.device, self.precision):
            batch = decode(
                self.model,
                self.model.remember(tokens.to(self.device), mask),
                start=Vocabulary.start,
                end=Vocabulary.end,
                strategy=search.strategy(generator),
                constraints=search.constraints(forbidden=tuple(forbidden)),
                length_normalisation=search.length_normalisation,
                coverage_penalty=search.coverage_penalty,
            )
        translations = []
        for source, hypotheses in zip(sources, batch, strict=True):
            n_best = [self._translation(source, each) for each in hypotheses[: search.n_best]]
            translations.append(replace(n_best[0], alternatives=tuple(n_best[1:])))
        return translations

    def _translation(self, source: _Source, hypothesis: Hypothesis) -> Translation:
        read = source.tokens
        alignment = hypothesis.attention[:, : len(read) + 1]  # (T, S), without padding
        tokens = self.target.tokens(hypothesis.tokens)
        if self.attends:
            tokens = copy_source_words(tokens, hypothesis.tokens, read, alignment)
        case = str.upper if source.is_upper else str
        source_words, words = (
            tuple(Word(case(text), size) for text, size in vocabulary.words(each))
            for vocabulary, each in ((self.source, read), (self.target, tokens))
        )
        return Translation(
            text=case(self.target.join(tokens)),
            source_tokens=(*self.source.shown(read), _END.text),
            tokens=tuple(self.target.shown(tokens)),
            log_probability=hypothesis.log_probability,
            token_log_probabilities=tuple(hypothesis.token_log_probabilities[:-1]),
            alignment=alignment if self.attends else alignment[:, :0],
            source_words=(*source_words, _END),
            words=words,
            score=hypothesis.score,
            truncated=source.lost,
            cut=hypothesis.cut,
        )


def _check_text(name: str, sentence: Any) -> None:
    if not isinstance(sentence, str):
        raise UserError(f"{name} is of the type {type(sentence).__name__}, not text")


def copy_source_words(
    tokens: list[str], indices: list[int], source: list[str], alignment: Tensor
) -> list[str]:
    """Replace each unknown token by the source token with the most attention.

    alignment: (T, S); S counts the source's end, which is never copied.
    """
    return [
        source[int(alignment[place, : len(source)].argmax())]
        if index == Vocabulary.unknown
        else token
        for place, (token, index) in enumerate(zip(tokens, indices, strict=True))
    ]
