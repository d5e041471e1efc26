"""Tokenised captions with their references, in the form that caption metrics count in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from captioner.evaluation.ngrams import IntArray, NgramCounts, Tokens, changes, count_ngrams


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
