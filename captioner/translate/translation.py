"""The translation of one sentence, with its alignment."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from captioner.arrays import Array
from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.render.alignment import Alignment, save_heat_map
from captioner.render.page import phrases
from captioner.text.languages import ENGLISH
from captioner.text.sentences import Word


@dataclass(frozen=True)
class Translation:
    """A translation and its alignment; equality ignores alignments.

    source_tokens: the S source tokens, the last of which is "<end>". tokens: the T target tokens.
    log_probability: of the translation with its end, in nats.
    token_log_probabilities: of each of the T tokens.
    alignment: (T, S), a float32 array: row t is the attention at token t. (T, 0) for a model
        without attention.
    source_words, words: the words of the tokens, each with the number of its tokens.
    score: the log-probability after length normalisation, plus the coverage penalty.
    truncated: number of tokens cut from the end of a source that was too long.
    cut: whether the translation reached the maximum length although the model preferred going on.
    sure: whether the confidence is at least the translator's limit.
    alternatives: the other n-best translations, best first.
    """

    text: str
    source_tokens: tuple[str, ...] = field(repr=False)
    tokens: tuple[str, ...] = field(repr=False)
    log_probability: float
    token_log_probabilities: tuple[float, ...] = field(repr=False)
    alignment: Array = field(compare=False, repr=False)
    source_words: tuple[Word, ...] = field(repr=False)
    words: tuple[Word, ...] = field(repr=False)
    score: float = 0.0
    truncated: int = 0
    cut: bool = False
    sure: bool = True
    alternatives: tuple[Translation, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def confidence(self) -> float:
        """The geometric mean of the probabilities of its tokens and its end."""
        return math.exp(self.log_probability / (len(self.token_log_probabilities) + 1))

    @property
    def doubt(self) -> str:
        """A note on low confidence; empty otherwise."""
        return "" if self.sure else phrases(ENGLISH).not_sure

    def heat_map(self, path: str | os.PathLike[str]) -> None:
        """Draw the alignment of words as a heat map: a picture or a .pdf."""
        if self.words and not self.alignment.shape[1]:
            raise UserError(f"cannot draw {path}: a model without attention has no alignment")
        save_heat_map(path, self.by_word())

    def by_token(self) -> Alignment:
        """The alignment of tokens."""
        return Alignment(self.source_tokens, self.tokens, self.alignment)

    def by_word(self) -> Alignment:
        """The alignment (T', S') of T' target words and S' source words.

        Sums weights over a source word's tokens, averages over a target word's: keeps sums of rows.
        """
        weights = self.alignment  # (T, S)
        of_target = _groups(self.words)  # (T, T')
        if weights.shape[1] > 0:
            weights = weights @ _groups(self.source_words)  # (T, S')
        weights = of_target.T @ weights / of_target.sum(axis=0)[:, None]  # (T', S')
        return Alignment(
            source=tuple(word.text for word in self.source_words),
            target=tuple(word.text for word in self.words),
            weights=weights,
        )

    def to_dict(self) -> JsonObject:
        """The translation as JSON, with alignments of tokens and words to four decimals."""
        by_word = self.by_word()
        plain = {
            "translation": self.text,
            "source_tokens": list(self.source_tokens),
            "tokens": list(self.tokens),
            "score": self.score,
            "log_probability": self.log_probability,
            "confidence": self.confidence,
            "sure": self.sure,
            "token_log_probabilities": list(self.token_log_probabilities),
            "alignment": _rounded(self.alignment),
            "source_words": list(by_word.source),
            "words": list(by_word.target),
            "word_alignment": _rounded(by_word.weights),
        }
        others = [other.to_dict() for other in self.alternatives]
        rare = {"truncated": self.truncated, "cut": self.cut, "alternatives": others}
        return plain | {name: value for name, value in rare.items() if value}


def _groups(words: Sequence[Word]) -> Array:
    """1 where a token belongs to a word, else 0: (tokens, words)."""
    return np.eye(len(words), dtype=np.float32).repeat([word.size for word in words], axis=0)


def _rounded(weights: Array) -> list[list[float]]:
    return np.asarray(weights, float).round(4).tolist()  # type: ignore[no-any-return]
