"""Counts n-grams of many sentences at once, in sorted arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

Tokens = Sequence[str]
"""A tokenised caption."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

MAXIMUM_ORDER = 4
"""The longest n-gram that BLEU and CIDEr count."""


@dataclass(frozen=True)
class NgramCounts:
    """The counts of n-grams of one length by sentence: E entries above 0.

    sentence, ngram, count: (E,), sorted by n-gram, then by sentence; n-grams are numbered from 0.
    examples: (number of different n-grams,) the index of its first occurrence among the words of
        all sentences.
    """

    order: int
    sentence: IntArray
    ngram: IntArray
    count: IntArray
    examples: IntArray

    def texts(self, sentences: Sequence[Tokens]) -> list[str]:
        """The n-grams, words joined by a space, in the order of their numbers.

        sentences: the ones counted.
        """
        row = list(chain.from_iterable(sentences))
        return [" ".join(row[start : start + self.order]) for start in self.examples.tolist()]


def count_ngrams(sentences: Sequence[Tokens]) -> list[NgramCounts]:
    """Count the n-grams of every length from 1 to `MAXIMUM_ORDER` in every sentence."""
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    row = chain.from_iterable(sentences)
    words = np.fromiter(map(numbers.__getitem__, row), dtype=np.int64)  # (W,)
    lengths = np.fromiter(map(len, sentences), dtype=np.int64)  # (S,)
    sentence_of = np.repeat(np.arange(len(lengths)), lengths)  # (W,)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))  # words to its end
    kinds = int(words.max(initial=0)) + 1
    ngram_at = np.zeros(len(words), dtype=np.int64)  # number of the n-gram that begins here
    counts = []
    for order in range(1, MAXIMUM_ORDER + 1):
        starts = np.flatnonzero(left >= order)
        # An n-gram is its first n - 1 words, as one number, and its last word.
        code = ngram_at[starts] * kinds + words[starts + order - 1]
        places = np.argsort(code, kind="stable")
        starts, code = starts[places], code[places]
        sentence = sentence_of[starts]
        another_ngram = changes(code)
        another_entry = another_ngram | changes(sentence)
        number = np.cumsum(another_ngram) - 1
        ngram_at[starts] = number
        entry = np.flatnonzero(another_entry)
        counts.append(
            NgramCounts(
                order,
                sentence[entry],
                number[entry],
                np.diff(np.append(entry, len(starts))),
                starts[another_ngram],
            )
        )
    return counts


def sum_by(group: IntArray, values: IntArray | FloatArray, groups: int) -> FloatArray:
    """The sum (groups,) of the values of each group; group, values: (E,)."""
    return np.asarray(np.bincount(group, values, groups), dtype=np.float64)


def changes(values: IntArray) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before; the first does."""
    changes = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
