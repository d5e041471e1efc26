"""The public translator: sentences to translations with alignments."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, overload

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import Self

from captioner.decoding import Hypothesis, TranslationSearch, decode
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.outcomes import Failed, attempt, shape_as_given, with_results
from captioner.schema import Config
from captioner.text.plain_text import Capitals, as_sentence
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, TextVocabulary, Vocabulary, Word
from captioner.translate.bahdanau import Bahdanau, BahdanauConfig
from captioner.translate.gnmt import GNMT, GNMTConfig
from captioner.translate.luong import Luong, LuongConfig
from captioner.translate.model import TranslationModel
from captioner.translate.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from captioner.translate.transformer import Transformer, TransformerConfig
from captioner.translate.translation import Translation

MEAN: Literal["mean"] = "mean"
"""In place of a head: the mean of all heads."""

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
        given = [name for name, model in self if model is not None]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"one model of {known} should be given, found {found}")
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
        sizes = self.model.embeddings.sizes
        if sizes != (len(self.source), len(self.target)):
            raise UserError(
                f"the model has {sizes[0]} source and {sizes[1]} target tokens, but the "
                f"vocabularies have {len(self.source)} and {len(self.target)}"
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
        `mean`; None keeps it. See `check_search` for the searches this rules out.
        """
        if layer is None and head is None:
            return
        if not isinstance(self.model, Transformer):
            raise UserError("an alignment layer or head needs a Transformer, which this is not")
        if isinstance(head, str) and head != MEAN:
            raise UserError(f"alignment head {head!r} is neither a number nor {MEAN}")
        chosen = self.model.alignment_layer if layer is None else layer
        chosen_head = self.model.alignment_head if head is None else head
        if isinstance(chosen_head, str):
            chosen_head = None
        self.model.config.replace(alignment_layer=chosen, alignment_head=chosen_head)  # Checks.
        self.model.alignment_layer, self.model.alignment_head = chosen, chosen_head

    def check_search(self, search: TranslationSearch) -> None:
        """Raise `UserError` for options that this model does not support.

        Coverage penalty and copying use the alignment, so they need the model's own layer and head:
        choosing another for display must not change the translation.
        """
        if search.copy_unknown and not self.attends:
            raise UserError("copy_unknown needs a model with attention, and this one has none")
        if isinstance(self.model, Transformer) and not self.model.has_default_alignment:
            for name in ("coverage_penalty", "copy_unknown"):
                if getattr(search, name):
                    raise UserError(
                        f"{name} uses the alignment, so another alignment layer or head would "
                        "change the translation: choose one of the two"
                    )

    @overload
    def translate(
        self,
        sentences: Any,
        search: TranslationSearch | None = None,
        *,
        on_error: Literal["skip"],
        **options: Any,
    ) -> Any: ...

    @overload
    def translate(
        self, sentences: str, search: TranslationSearch | None = None, **options: Any
    ) -> Translation: ...

    @overload
    def translate(
        self, sentences: Iterator[str], search: TranslationSearch | None = None, **options: Any
    ) -> Iterator[Translation]: ...

    @overload
    def translate(
        self, sentences: Iterable[str], search: TranslationSearch | None = None, **options: Any
    ) -> list[Translation]: ...

    def translate(
        self,
        sentences: Any,
        search: TranslationSearch | None = None,
        *,
        batch_size: int = 32,
        generator: torch.Generator | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        **options: Any,
    ) -> Any:
        """Translate a sentence, or sentences in order.

        sentences: a string gives one translation, a list or other collection gives a list, and an
            iterator (such as a generator) gives an iterator, which reads it batch by batch.
        search: in place of the model's own. batch_size: sentences decoded together, sorted by
            length. generator: for sampling; by default a new one with the seed of the search.
        on_error: `raise` raises `UserError` for a sentence that is not a string; `skip` gives a
            `Failed` with the reason in place of its translation.
        options: fields of `TranslationSearch`, such as `beam=10` or `n_best=3`, over the search.

        An empty sentence has an empty translation. A sentence that is too long is cut with a
        `UserWarning` that names it; see `Translation.truncated`. A translation that reaches the
        maximum length has `Translation.cut`.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        search = (search or self.search).override(**options)
        self.check_search(search)
        generator = generator or search.generator(self.device)
        is_one = isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable)
        is_lazy = isinstance(sentences, Iterator)
        named: Iterator[tuple[str, Any]] = (
            ("the sentence" if is_one else f"sentence {number}", sentence)
            for number, sentence in enumerate([sentences] if is_one else sentences, start=1)
        )
        if not is_lazy and on_error == "raise":
            named = iter([(name, _text(name, sentence)) for name, sentence in named])
        outcomes = self._outcomes(named, is_lazy, batch_size, search, generator)
        return shape_as_given(sentences, is_one, outcomes, on_error)

    def _outcomes(
        self,
        named: Iterator[tuple[str, Any]],
        is_lazy: bool,
        batch_size: int,
        search: TranslationSearch,
        generator: torch.Generator,
    ) -> Iterator[Translation | Failed]:
        """named: names in messages, and sentences. is_lazy: read no more than a batch ahead."""
        while chunk := list(islice(named, batch_size if is_lazy else None)):
            sources = [attempt(name, partial(self._read, name, each)) for name, each in chunk]
            for (name, _), source in zip(chunk, sources, strict=True):
                if isinstance(source, _Source) and source.lost:
                    warnings.warn(
                        f"{name} has {len(source.tokens) + source.lost:,} tokens, of which the "
                        f"last {source.lost:,} are not read: this model reads "
                        f"{self.maximum_source_length:,}",
                        stacklevel=2 if is_lazy else 4,  # The line that called `translate`.
                    )
            yield from with_results(
                sources, partial(self._in_batches, batch_size, search, generator)
            )

    def _read(self, name: str, sentence: Any) -> _Source:
        text, is_upper = as_sentence(_text(name, sentence), self.capitals)
        tokens, longest = self.source.split(text), self.maximum_source_length
        return _Source(tokens[:longest], max(0, len(tokens) - longest), is_upper)

    def _in_batches(
        self,
        batch_size: int,
        search: TranslationSearch,
        generator: torch.Generator,
        sources: list[_Source],
    ) -> list[Translation]:
        """Translate batches of similar length; returns translations in the given order."""
        translations = [_EMPTY] * len(sources)
        order = [place for place, source in enumerate(sources) if source.tokens]
        order.sort(key=lambda place: len(sources[place].tokens))
        for first in range(0, len(order), batch_size):
            places = order[first : first + batch_size]
            batch = self._translate([sources[place] for place in places], search, generator)
            for place, translation in zip(places, batch, strict=True):
                translations[place] = translation
        return translations

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
                constraints=search.constraints(tuple(forbidden)),
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
        return Translation(
            text=case(self.target.join(tokens)),
            source_tokens=(*self.source.shown(read), _END.text),
            tokens=tuple(self.target.shown(tokens)),
            log_probability=hypothesis.log_probability,
            token_log_probabilities=tuple(hypothesis.token_log_probabilities[:-1]),
            alignment=alignment if self.attends else alignment[:, :0],
            source_words=(
                *(Word(case(word), size) for word, size in self.source.words(read)),
                _END,
            ),
            words=tuple(Word(case(word), size) for word, size in self.target.words(tokens)),
            score=hypothesis.score,
            truncated=source.lost,
            cut=hypothesis.cut,
        )


def _text(name: str, sentence: Any) -> str:
    """The sentence, which must be text."""
    if not isinstance(sentence, str):
        raise UserError(f"{name} is of the type {type(sentence).__name__}, not text")
    return sentence


def copy_source_words(
    tokens: list[str], indices: list[int], source: list[str], alignment: Tensor
) -> list[str]:
    """Replace each unknown token by the source token with the most attention.

    alignment: (T, S); S counts the source's end, which is never copied.
    """
    result = list(tokens)
    for position, index in enumerate(indices):
        if index == Vocabulary.unknown and source:
            result[position] = source[int(alignment[position, : len(source)].argmax())]
    return result
