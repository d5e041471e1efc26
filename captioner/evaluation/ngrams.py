"""Counting n-grams of many sentences at once, as sorted arrays instead of dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.evaluation.corpus import Tokens

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MAXIMUM_ORDER = 4
"""The longest n-gram that BLEU and CIDEr count."""


@dataclass(frozen=True)
class NgramCounts:
    """How often each n-gram of one length occurs in each sentence: E entries, none of count 0.

    sentence, ngram, count: (E,), sorted by sentence, then by n-gram; n-grams are numbered from 0.
    examples: (number of different n-grams,) the n-grams themselves, as (sentence, start).
    """

    order: int
    sentence: IntArray
    ngram: IntArray
    count: IntArray
    examples: tuple[IntArray, IntArray]

    @property
    def number_of_ngrams(self) -> int:
        """How many different n-grams there are."""
        return len(self.examples[0])

    def count_of(self, sentence: IntArray, ngram: IntArray) -> IntArray:
        """Counts (N,) of the n-grams `ngram` (N,) in the sentences `sentence` (N,)."""
        if len(self.sentence) == 0:
            return np.zeros(len(sentence), dtype=np.int64)
        known = self.sentence * self.number_of_ngrams + self.ngram
        wanted = sentence * self.number_of_ngrams + ngram
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[place] == wanted, self.count[place], 0)

    def words(self, sentences: Sequence[Tokens]) -> list[tuple[str, ...]]:
        """The n-grams as words, in the order of their numbers.

        sentences: the same that were counted.
        """
        return [
            tuple(sentences[sentence][start : start + self.order])
            for sentence, start in zip(*(part.tolist() for part in self.examples), strict=True)
        ]


def count_ngrams(
    sentences: Sequence[Tokens], maximum_order: int = MAXIMUM_ORDER
) -> list[NgramCounts]:
    """Count the n-grams of every length from 1 to `maximum_order` in every sentence."""
    numbers: dict[str, int] = {}
    words = np.array(
        [numbers.setdefault(word, len(numbers)) for tokens in sentences for word in tokens],
        dtype=np.int64,
    )
    lengths = sentence_lengths(sentences)
    sentence_of = np.repeat(np.arange(len(sentences)), lengths)
    start_of = np.arange(len(words)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    left = np.repeat(lengths, lengths) - start_of  # words from here to the end of the sentence

    counts = []
    ngram_at = np.zeros(len(words), dtype=np.int64)  # number of the n-gram that starts here
    for order in range(1, maximum_order + 1):
        starts = np.flatnonzero(left >= order)
        # An n-gram is the one shorter by its last word, and that word.
        code = ngram_at[starts] * max(1, len(numbers)) + words[starts + order - 1]
        _, first, number = np.unique(code, return_index=True, return_inverse=True)
        ngram_at[starts] = number
        kinds = max(1, len(first))
        pairs, count = np.unique(sentence_of[starts] * kinds + number, return_counts=True)
        examples = (sentence_of[starts[first]], start_of[starts[first]])
        counts.append(
            NgramCounts(order, pairs // kinds, pairs % kinds, count.astype(np.int64), examples)
        )
    return counts


def sentence_lengths(sentences: Sequence[Tokens]) -> IntArray:
    """Number of words of each sentence, (len(sentences),)."""
    return np.array([len(tokens) for tokens in sentences], dtype=np.int64)
