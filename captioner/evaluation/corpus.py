"""Captions with their references as numbers, and what a metric makes of them."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

Tokens = Sequence[str]
"""A tokenised caption."""

IntArray = NDArray[np.integer]
FloatArray = NDArray[np.float64]

MAXIMUM_ORDER = 4
"""The longest n-gram that BLEU and CIDEr count."""


@dataclass(frozen=True)
class Metric:
    """The M scores of I captions; those of all together depend on a sum over the images only.

    per_image: (I,), or (I, M): each image's own first score, or scores; NaN where it has none.
    terms: (I, C), what each image adds to the sum; (I, 0) for scores that cannot be resampled.
    of_totals: sums (..., C) over I images -> scores (..., M).
    """

    names: tuple[str, ...]
    per_image: FloatArray
    terms: FloatArray
    of_totals: Callable[[FloatArray], FloatArray]

    @classmethod
    def mean(cls, name: str, per_image: FloatArray) -> Metric:
        """A score that is the mean of `per_image` (I,)."""
        images = len(per_image)
        return cls((name,), per_image, per_image[:, None], lambda totals: totals / images)

    @cached_property
    def scores(self) -> FloatArray:
        """The scores (M,) of all captions together."""
        return self.of_totals(self.terms.sum(axis=0))


@dataclass(frozen=True)
class Corpus:
    """A caption and one or more references of each of I images; made by `of`.

    S sentences, each image's caption before its references, with W words in all.

    vocabulary: the V different words. A word may have white space in it ("22 3/4"): it is one word
        to ROUGE-L, and several in `split`, which the other metrics of the COCO evaluation take.
    words: (W,) the number in the vocabulary of every word of every sentence.
    lengths: (S,) words of each sentence.
    firsts: (I,) the sentence that is each image's caption.
    """

    vocabulary: list[str]
    words: IntArray
    lengths: IntArray
    firsts: IntArray

    @classmethod
    def of(cls, captions: Iterable[Tokens], references: Iterable[Iterable[Tokens]]) -> Corpus:
        """The corpus of tokenised captions and references, image by image; read once."""
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        lengths, firsts = array("i"), array("i")

        def sentences() -> Iterator[Tokens]:
            for caption, of_image in zip(captions, references, strict=True):
                firsts.append(len(lengths))
                for sentence in chain((caption,), of_image):
                    lengths.append(len(sentence))
                    yield sentence

        every = map(numbers.__getitem__, chain.from_iterable(sentences()))
        words = np.fromiter(every, np.int32)
        return cls(list(numbers), words, np.array(lengths, np.int32), np.array(firsts, np.int32))

    @property
    def images(self) -> int:
        """The number of images, I."""
        return len(self.firsts)

    @cached_property
    def image_of(self) -> IntArray:
        """The image (S,) of each sentence."""
        sizes = np.diff(self.firsts, append=len(self.lengths))
        return np.repeat(np.arange(self.images, dtype=np.int32), sizes)

    @cached_property
    def is_reference(self) -> NDArray[np.bool_]:
        """Whether each sentence (S,) is a reference."""
        references = np.ones(len(self.lengths), dtype=np.bool_)
        references[self.firsts] = False
        return references

    @cached_property
    def starts(self) -> IntArray:
        """The place (S,) of each sentence's first word in `words`."""
        return np.cumsum(self.lengths) - self.lengths

    def sentence(self, number: int) -> list[str]:
        """The words of one sentence."""
        start = self.starts[number]
        return [self.vocabulary[n] for n in self.words[start : start + self.lengths[number]]]

    @property
    def captions(self) -> Iterator[list[str]]:
        """The words of each image's caption."""
        return map(self.sentence, self.firsts.tolist())

    @property
    def references(self) -> Iterator[list[list[str]]]:
        """The words of each image's references."""
        ends = np.append(self.firsts[1:], len(self.lengths)).tolist()
        for first, end in zip(self.firsts.tolist(), ends, strict=True):
            yield [self.sentence(number) for number in range(first + 1, end)]

    @cached_property
    def split(self) -> Corpus:
        """The same corpus with words such as "22 3/4" split at white space."""
        parts = [word.split() for word in self.vocabulary]
        sizes = np.fromiter(map(len, parts), dtype=np.int32)  # (V,)
        if (sizes == 1).all():
            return self
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        part = np.array([numbers[piece] for each in parts for piece in each], dtype=np.int32)
        times = sizes[self.words]  # (W,), words in place of each
        before = np.append(0, np.cumsum(times)).astype(np.int32)  # (W + 1,)
        first = (np.cumsum(sizes, dtype=np.int32) - sizes)[self.words] - before[:-1]
        words = part[np.repeat(first, times) + np.arange(before[-1], dtype=np.int32)]
        lengths = before[self.starts + self.lengths] - before[self.starts]
        return Corpus(list(numbers), words, lengths, self.firsts)

    def ngrams(self) -> Iterator[Ngrams]:
        """The n-grams of one to four words, counted anew; use and drop one length at a time."""
        ends = (self.starts + self.lengths).astype(np.int32)
        left = np.repeat(ends, self.lengths) - np.arange(len(self.words), dtype=np.int32)
        left = np.minimum(left, MAXIMUM_ORDER).astype(np.int8)  # words up to the sentence's end
        sentence_of = np.repeat(np.arange(len(ends), dtype=np.int32), self.lengths)  # (W,)
        ngram_at = np.zeros(len(self.words), dtype=np.int32)  # number of the n-gram that begins
        for order in range(1, MAXIMUM_ORDER + 1):
            places = np.flatnonzero(left >= order).astype(np.int32)
            yield _by_image(self, order, *_by_sentence(self, order, places, sentence_of, ngram_at))


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of one length, G different ones, by sentence: E entries above 0.

    sentence, ngram: (E,), sorted by n-gram, then by sentence; n-grams are numbered from 0.
    number: (E,) how often the sentence has the n-gram. in_caption: (E,) how often its image's
        caption has it.
    matches: (I,) the n-grams of each caption that a reference has; one counts at most as often as
        any one reference has it.
    images: (G,) the number of images in whose references the n-gram occurs.
    examples: (G,) the place of its first occurrence in `Corpus.words`.
    """

    order: int
    sentence: IntArray
    ngram: IntArray
    number: IntArray
    in_caption: IntArray
    matches: IntArray
    images: IntArray
    examples: IntArray

    def texts(self, corpus: Corpus) -> list[str]:
        """The n-grams (G,), words joined by a space."""
        places = self.examples[:, None] + np.arange(self.order)  # (G, order)
        words = corpus.vocabulary
        return [" ".join([words[n] for n in row]) for row in corpus.words[places].tolist()]


def _by_sentence(
    corpus: Corpus, order: int, places: IntArray, sentence_of: IntArray, ngram_at: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """`sentence`, `ngram`, `number` and `examples` of `Ngrams`, of the n-grams at some places.

    ngram_at: (W,), the numbers of the n-grams of one word less; receives those of these.
    """
    # An n-gram is its first n - 1 words, as one number, and its last word.
    last = corpus.words[places + (order - 1)]
    code, places = _sorted(ngram_at[places] * np.int64(len(corpus.vocabulary)) + last, places)
    is_new = _changes(code)
    del code, last  # Large ones.
    ngram_at[places] = np.cumsum(is_new, dtype=np.int32) - 1
    sentence = sentence_of[places]
    entry = np.flatnonzero(is_new | _changes(sentence)).astype(np.int32)
    number = np.diff(entry, append=np.int32(len(places)))
    return sentence[entry], ngram_at[places[entry]], number, places[is_new]


def _by_image(
    corpus: Corpus,
    order: int,
    sentence: IntArray,
    ngram: IntArray,
    number: IntArray,
    examples: IntArray,
) -> Ngrams:
    """Compare the counts of each caption with those of its image's references."""
    image, of_reference = corpus.image_of[sentence], corpus.is_reference[sentence]
    another = _changes(image) | _changes(ngram)
    first = np.flatnonzero(another)  # (P,) pairs of image and n-gram; the caption is first
    pair = np.cumsum(another, dtype=np.int32) - 1  # (E,)
    in_caption = number[first] * ~of_reference[first]  # (P,)
    in_references = number * of_reference
    most = np.maximum.reduceat(in_references, first) if len(first) else in_references  # (P,)
    matches = np.bincount(image[first], np.minimum(in_caption, most), corpus.images)
    images = np.bincount(ngram[first[most > 0]], minlength=len(examples))
    matches = matches.astype(np.int64)
    return Ngrams(order, sentence, ngram, number, in_caption[pair], matches, images, examples)


def _sorted(code: NDArray[np.int64], places: IntArray) -> tuple[NDArray[np.int64], IntArray]:
    """Codes and places, not negative, sorted by both; the places ascend already.

    Both in one number, if it has the bits: a third of the time of `argsort`.
    """
    bits = int(places.max(initial=0)).bit_length()
    if int(code.max(initial=0)).bit_length() + bits >= 64:
        order = np.argsort(code, kind="stable")
        return code[order], places[order]
    code <<= bits
    code |= places
    code.sort()
    places = (code & ((1 << bits) - 1)).astype(np.int32)
    code >>= bits
    return code, places


def _changes(values: IntArray) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before; the first does."""
    changes = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
