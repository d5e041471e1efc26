"""The translator: translates sentences, one or many, whatever computes its networks."""

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from captioner.backends.protocol import TranslationBackend, check_search, new_generator
from captioner.decoding.options import TranslationSearch
from captioner.decoding.search import Hypothesis
from captioner.errors import UserError
from captioner.outcomes import outcomes_of, shape_as_given
from captioner.text import SentenceVocabulary
from captioner.text.languages import Capitals, as_sentence, straighten, unescape_entities
from captioner.text.sentences import Word, without_joiners
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary
from captioner.translate.translation import Translation

_Search = TranslationSearch | None
_END = Word(SPECIAL_WORDS[Vocabulary.end], 1)
_EMPTY = Translation(
    "", (_END.text,), (), 0.0, (), np.empty((0, 1), np.float32), source_words=(_END,), words=()
)


class _Source(NamedTuple):
    """A sentence to translate: tokens, how many were cut, whether it was in upper case."""

    tokens: list[str]
    lost: int
    is_upper: bool


@dataclass(repr=False, eq=False)
class Translator:
    """Translates sentences; see `captioner.load_translator`.

    backend: computes the networks. maximum_source_length: tokens; longer sources are cut with a
        warning. search: default search options. card: text of the model card.
    capitals: which lines are rewritten as sentences, see `as_sentence`; the translation of a line
        in upper case is in upper case too.
    unsure_below: translations of less confidence are not `sure`.
    """

    backend: TranslationBackend
    maximum_source_length: int = 200
    search: TranslationSearch = field(default_factory=TranslationSearch)
    card: str = ""
    capitals: Capitals = "keep"
    unsure_below: float = 0.5

    def __repr__(self) -> str:
        sizes = f"{len(self.source):,} source and {len(self.target):,} target tokens"
        return f"Translator({self.backend!r}, {sizes}, by {self.engine})"

    @property
    def engine(self) -> str:
        """What computes it: `graphs`, `torch` or another backend."""
        return self.backend.engine

    @property
    def source(self) -> SentenceVocabulary:
        """The vocabulary of the sentences."""
        return self.backend.source

    @property
    def target(self) -> SentenceVocabulary:
        """The vocabulary of the translations; the same object if joint."""
        return self.backend.target

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and so alignments."""
        return self.backend.attends

    def choose_alignment(self, layer: int | None, head: int | Literal["mean"] | None) -> None:
        """Set the decoder layer and head of a Transformer that alignments come from.

        layer: counted from 0, or from -1 for the last. head: counted from 0, or `mean` of all. None
        keeps it. The coverage penalty and the copying of unknown words use this alignment too.
        """
        self.backend.choose_alignment(layer, head)

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

        Entities of HTML are unescaped, typographic marks straightened. An empty sentence has an
        empty translation. A sentence that is too long is cut with a `UserWarning` that names it;
        see `Translation.truncated`. A translation that reaches the maximum length has
        `Translation.cut`.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        search = (search or self.search).override(**options)
        if search.copy_unknown and not self.attends:
            raise UserError("copy_unknown needs a model with attention, and this one has none")
        check_search(self.backend, search)
        generator = new_generator(self.backend, search)
        is_one = isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable)
        inputs = [sentences] if is_one else sentences
        read_ahead = batch_size  # Sentences that are read before the first is translated.
        if not isinstance(inputs, Iterator):
            inputs = list(inputs)
            read_ahead = len(inputs) or 1
        named = ((f"sentence {number}", text) for number, text in enumerate(inputs, start=1))
        compute = partial(self._translate, batch_size, search, generator)
        outcomes = outcomes_of(named, read_ahead, self._read, compute)
        return shape_as_given(sentences, is_one, outcomes, on_error)

    def _read(self, name: str, sentence: object) -> _Source:
        if not isinstance(sentence, str):
            raise UserError(f"{name} is of the type {type(sentence).__name__}, not text")
        straight = straighten(unescape_entities(sentence))
        text, is_upper = as_sentence(straight, self.capitals)
        tokens = self.source.split(text)
        longest = self.maximum_source_length
        lost = max(0, len(tokens) - longest)
        if lost:
            unread = f"{len(tokens):,} tokens, of which the last {lost:,} are not read"
            warnings.warn(f"{name} has {unread}: this model reads {longest:,}", stacklevel=1)
        return _Source(tokens[:longest], lost, is_upper)

    def _translate(
        self, batch_size: int, search: TranslationSearch, generator: Any, sources: list[_Source]
    ) -> list[Translation]:
        """Translate batches of similar length; returns translations in the given order."""
        order = [index for index, source in enumerate(sources) if source.tokens]
        order.sort(key=lambda index: len(sources[index].tokens))
        translations = [_EMPTY] * len(sources)
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            tokens = [self.source.indices(sources[index].tokens) for index in chosen]
            batch = self.backend.search(tokens, search, generator)
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
        confidence = math.exp(hypothesis.log_probability / len(hypothesis.token_log_probabilities))
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
            sure=confidence >= self.unsure_below,
        )
