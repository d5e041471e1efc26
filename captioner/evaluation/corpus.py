"""Tokenised captions with their references, and their n-grams, counted in sorted arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
class Corpus:
    """Captions and references of I images; made by `of`.

    sentences: S sentences, each image's caption before its references.
    image_of: (S,) the image of each. firsts: (I,) the index of each image's caption.
    """

    sentences: list[Tokens]
    image_of: IntArray
    firsts: IntArray

    @classmethod
    def of(cls, hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Corpus:
        """The corpus of one caption an image and its references, in the same order."""
        sentences: list[Tokens] = []
        for hypothesis, candidates in zip(hypotheses, references, strict=True):
            sentences.append(hypothesis)
            sentences.extend(candidates)
        sizes = 1 + np.fromiter(map(len, references), dtype=np.int64)  # (I,)
        return cls(sentences, np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes)

    def split(self) -> Corpus:
        """The same corpus with words such as "22 3/4" split at white space."""
        spaced = {word for word in {*chain(*self.sentences)} if len(word.split()) != 1}
        if not spaced:
            return self
        sentences = [
            tokens if spaced.isdisjoint(tokens) else " ".join(tokens).split()
            for tokens in self.sentences
        ]
        return replace(self, sentences=sentences)

    @property
    def images(self) -> int:
        """The number of images, I."""
        return len(self.firsts)

    @cached_property
    def lengths(self) -> IntArray:
        """Words of each sentence, (S,)."""
        return np.fromiter(map(len, self.sentences), dtype=np.int64)

    @cached_property
    def is_reference(self) -> NDArray[np.bool_]:
        """Whether each sentence (S,) is a reference."""
        references = np.ones(len(self.sentences), dtype=np.bool_)
        references[self.firsts] = False
        return references

    @cached_property
    def ngrams(self) -> list[ImageNgrams]:
        """The n-grams of one to four words, counted once for all metrics."""
        return [
            ImageNgrams.of(counts, self.image_of, self.is_reference)
            for counts in count_ngrams(self.sentences)
        ]


@dataclass(frozen=True)
class ImageNgrams:
    """The n-grams of one length, as P pairs of an image and an n-gram in its sentences.

    counts: by sentence, E entries. of_reference: (E,). pair: (E,) the pair of each entry.
    ngram, image: (P,). in_caption: (P,) the count in the image's caption, often 0.
    in_reference: (P,) the highest count in any one of the image's references.
    """

    counts: NgramCounts
    of_reference: NDArray[np.bool_]
    pair: IntArray
    ngram: IntArray
    image: IntArray
    in_caption: IntArray
    in_reference: IntArray

    @classmethod
    def of(
        cls, counts: NgramCounts, image_of: IntArray, is_reference: NDArray[np.bool_]
    ) -> ImageNgrams:
        """Gather counts by image; image_of, is_reference: (S,) as in `Corpus`."""
        image = image_of[counts.sentence]  # (E,), sorted within each n-gram
        another = changes(image) | changes(counts.ngram)
        start = np.flatnonzero(another)  # (P,); a caption's entry comes first
        of_reference = is_reference[counts.sentence]
        by_reference = np.where(of_reference, counts.count, 0)
        return cls(
            counts,
            of_reference,
            np.cumsum(another) - 1,
            counts.ngram[start],
            image[start],
            np.where(of_reference[start], 0, counts.count[start]),
            np.maximum.reduceat(by_reference, start) if len(start) else by_reference,
        )


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


def _sorting(code: IntArray) -> IntArray:
    """The indices that sort non-negative codes, stably; half of the time of `argsort`."""
    bits = len(code).bit_length()
    if int(code.max(initial=0)).bit_length() + bits >= 64:
        return np.argsort(code, kind="stable")
    keyed = (code << bits) | np.arange(len(code))  # The index in the lower bits.
    keyed.sort()
    return np.asarray(keyed & ((1 << bits) - 1))


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
        places = _sorting(code)
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
