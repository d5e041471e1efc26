"""Subwords drawn at random: the same sentence in other pieces every time it is learned from.

Kudo 2018, *Subword Regularization: Improving Neural Network Translation Models with Multiple
Subword Candidates*, section 3.
"""

from __future__ import annotations

import bisect
import math
from itertools import accumulate
from typing import NamedTuple

import numpy

from captioner.errors import UserError
from captioner.text.plain_text import plain_text
from captioner.text.subwords import SubwordVocabulary

BEST = 16
"""Of so many ways of cutting a word, the likeliest ones, one is drawn; l of the paper."""


class _Ways(NamedTuple):
    """How a word may be cut: pieces, and the chance of each way and those before it."""

    pieces: list[list[int]]
    chances: list[float]


class SubwordSampler:
    """Cuts text into pieces of a unigram vocabulary, by chance rather than at its likeliest.

    A word is cut in way x with a probability proportional to P(x)^exponent, among the likeliest
    `best` ways; that is the paper's sampling, since no piece has letters of two words. An exponent
    of 1 draws from the unigram model itself; a smaller one is more even, a larger one sharper.
    """

    def __init__(self, vocabulary: SubwordVocabulary, exponent: float, best: int = BEST) -> None:
        """Take a vocabulary of the method `unigram`.

        exponent: alpha of the paper, 0.1 to 0.5 there. best: l of the paper, but of a word.
        Raises `UserError` for an exponent that is not above 0.
        """
        if not 0 < exponent < math.inf:
            raise UserError(f"the exponent of sampling {exponent} is not above 0")
        self.vocabulary = vocabulary
        self.exponent = exponent
        self.best = best
        self._ways: dict[str, _Ways] = {}

    def indices(self, text: str, generator: numpy.random.Generator) -> list[int]:
        """The tokens of a text, cut at random. Raises `UserError` as `likeliest` does."""
        words = plain_text(text, self.vocabulary.case).split(" ")
        found: list[int] = []
        for word, chance in zip(words, generator.random(len(words)).tolist(), strict=True):
            ways = self._ways.get(word) or self._learn(word)
            place = bisect.bisect(ways.chances, chance * ways.chances[-1])
            found += ways.pieces[min(place, len(ways.pieces) - 1)]
        return found

    def _learn(self, word: str) -> _Ways:
        likeliest = self.vocabulary.likeliest(word, self.best)
        top = max(score for _, score in likeliest)
        weights = (math.exp(self.exponent * (score - top)) for _, score in likeliest)
        ways = _Ways([pieces for pieces, _ in likeliest], list(accumulate(weights)))
        self._ways[word] = ways
        return ways
