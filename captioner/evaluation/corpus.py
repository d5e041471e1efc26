"""Captions and references as numbers, their scores, the evidence for a difference.

Confidence intervals: the percentile bootstrap (Efron 1979, *Bootstrap Methods: Another Look at the
Jackknife*), which draws images with replacement. Comparisons: the paired bootstrap on the same
draws (Koehn 2004, *Statistical Significance Tests for Machine Translation Evaluation*, section 4).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, Figures

Tokens = Sequence[str]  # A tokenised caption.
IntArray = NDArray[np.integer]
FloatArray = NDArray[np.float64]
MAXIMUM_ORDER = 4  # The longest n-gram that BLEU and CIDEr count.

RESAMPLES = 1000  # Times that the images are drawn, with one seed: intervals are reproducible.
# A comparison counts scores below this as 0. The COCO evaluation adds 1e-15 to the matches of BLEU,
# so that captions without a match of four words have a BLEU-4 of up to (1e-15) ** (1 / 4) = 1.8e-4.
NO_DIFFERENCE = 2e-4

# Fewest images for intervals and p values to be evidence: if one system is better on all of n
# images, an exact test gives p = 2 / 2^n, the paired bootstrap 0.
FEW_IMAGES = 30

_TIE = 1e-12  # Differences this close are equal up to rounding.


@dataclass(frozen=True)
class Metric:
    """The M scores of I captions; those of all together are functions of sums over the images.

    per_image: (I,), or (I, M): each image's own first score, or scores; NaN where it has none.
    terms: (I, C), what each image adds to the sum; (I, 0) for scores that cannot be resampled.
    of_totals: sums (..., C) over I images -> scores (..., M).
    """

    names: tuple[str, ...]
    per_image: FloatArray
    terms: FloatArray
    of_totals: Callable[[FloatArray], FloatArray]
    details: dict[str, float] = field(default_factory=dict)

    @classmethod
    def mean(cls, name: str, per_image: FloatArray) -> "Metric":
        """A score that is the mean of `per_image` (I,)."""
        images = len(per_image)
        return cls((name,), per_image, per_image[:, None], lambda totals: totals / images)

    @cached_property
    def scores(self) -> FloatArray:
        """The scores (M,) of all captions together."""
        return self.of_totals(self.terms.sum(axis=0))


def scores_by_name(metrics: Iterable[Metric]) -> dict[str, float]:
    """The scores of all captions together."""
    pairs = (zip(one.names, one.scores.tolist(), strict=True) for one in metrics)
    return dict(chain.from_iterable(pairs))


class Corpus:
    """A tokenised caption and one or more references of each of I images, read once.

    S sentences, each image's caption before its references, with W words in all.

    vocabulary: the V different words.
    words: (W,) the number in the vocabulary of every word of every sentence.
    lengths, starts: (S,) words of each sentence, and the place of its first one in `words`.
    image_of, is_reference: (S,) the image of each sentence, and whether it is a reference.
    firsts: (I,) the sentence that is each image's caption.
    """

    def __init__(self, captions: Iterable[Tokens], references: Iterable[Iterable[Tokens]]) -> None:
        self.captions = list(captions)
        self.references = [list(of_image) for of_image in references]
        self.images = len(self.captions)
        pairs = zip(self.captions, self.references, strict=True)
        sentences = list(chain.from_iterable((caption, *texts) for caption, texts in pairs))
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        words = map(numbers.__getitem__, chain.from_iterable(sentences))
        self.words: IntArray = np.fromiter(words, np.int32)
        self.vocabulary = list(numbers)
        self.lengths: IntArray = np.fromiter(map(len, sentences), np.int32)
        self.starts = np.cumsum(self.lengths) - self.lengths
        sizes = 1 + np.fromiter(map(len, self.references), np.int32)  # (I,)
        self.firsts = np.cumsum(sizes) - sizes
        self.image_of = np.repeat(np.arange(self.images, dtype=np.int32), sizes)
        self.is_reference = np.ones(len(sentences), dtype=np.bool_)
        self.is_reference[self.firsts] = False

    @cached_property
    def ngrams(self) -> "list[Ngrams]":
        """The n-grams of one word, of two, three and four."""
        sentence_of = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)  # (W,)
        left = (self.starts + self.lengths)[sentence_of] - np.arange(len(self.words))  # (W,)
        ngram_at = np.zeros(len(self.words), dtype=np.int64)  # number of the n-gram that begins
        counted = []
        for order in range(1, MAXIMUM_ORDER + 1):
            places: IntArray = np.flatnonzero(left >= order)
            # An n-gram is its first n - 1 words, as one number, and its last word.
            last = self.words[places + (order - 1)]
            code: IntArray = ngram_at[places] * len(self.vocabulary) + last
            code, places = _sorted(code, places)
            is_new = _changes(code)
            sentence = sentence_of[places]
            ngram = np.cumsum(is_new, dtype=np.int32) - 1
            ngram_at[places] = ngram
            entry = np.flatnonzero(is_new | _changes(sentence))  # (E,)
            number = np.diff(entry, append=len(places)).astype(np.int32)
            ngram, sentence, examples = ngram[entry], sentence[entry], places[is_new]
            # Captions are matched with their references.
            image, of_reference = self.image_of[sentence], self.is_reference[sentence]
            another = _changes(image) | _changes(ngram)
            first = np.flatnonzero(another)  # (P,) pairs of image and n-gram; the caption is first
            caption_counts = number[first] * ~of_reference[first]  # (P,)
            most = number * of_reference
            if len(first):
                most = np.maximum.reduceat(most, first)  # (P,)
            matches = np.bincount(image[first], np.minimum(caption_counts, most), self.images)
            images = np.bincount(ngram[first[most > 0]], minlength=len(examples))
            in_caption = caption_counts[np.cumsum(another) - 1]  # (E,)
            ngrams = Ngrams(order, sentence, ngram, number, in_caption, matches, images, examples)
            counted.append(ngrams)
        return counted


@dataclass(frozen=True)
class Ngrams:
    """The n-grams of one length, G different ones, by sentence: E entries above 0.

    The entries are sorted by n-gram, then by sentence; n-grams are numbered from 0.
    """

    order: int
    sentence: IntArray  # (E,)
    ngram: IntArray  # (E,)
    number: IntArray  # (E,) How often the sentence has the n-gram.
    in_caption: IntArray  # (E,) How often its image's caption has it.
    matches: IntArray  # (I,) Of the caption, each at most as often as one reference has it.
    images: IntArray  # (G,) Those in whose references the n-gram occurs.
    examples: IntArray  # (G,) A place in `Corpus.words` at which it begins.

    def texts(self, corpus: Corpus) -> list[str]:
        """The n-grams (G,), words joined by a space."""
        places = self.examples[:, None] + np.arange(self.order)  # (G, order)
        words = corpus.vocabulary
        return [" ".join([words[n] for n in row]) for row in corpus.words[places].tolist()]


def _sorted(code: IntArray, places: IntArray) -> tuple[IntArray, IntArray]:
    """Sort codes and ascending places by both; as one number, if it fits: twice as fast."""
    bits = int(places.max(initial=0)).bit_length()
    if int(code.max(initial=0)).bit_length() + bits >= 64:
        order = np.argsort(code, kind="stable")
        return code[order], places[order]
    both = np.sort(code << bits | places)
    return both >> bits, both & ((1 << bits) - 1)


def _changes(values: IntArray) -> NDArray[np.bool_]:
    """Whether each entry differs from the one before; the first does."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def confidence_intervals(
    metrics: Sequence[Metric], confidence: float = CONFIDENCE
) -> dict[str, tuple[float, float]]:
    """The bootstrap interval of every score, by name. Raises `UserError` for a single image."""
    return {
        name: _interval(scores[1:], confidence)
        for metric in metrics
        for name, scores in _resampled(metric).items()
    }


def compare(
    first: Sequence[Metric], second: Sequence[Metric], confidence: float = CONFIDENCE
) -> dict[str, Figures]:
    """Compare two systems by every score, by name, of the same metrics and images.

    first, second: their scores. difference: first less second, where scores below `NO_DIFFERENCE`
    are 0, with its interval by the paired bootstrap. p_bootstrap: two-sided: twice Koehn's share of
    the resamples in which the better system is not better, with one added to both; at most 1.
    """
    comparisons = {}
    for one, other in zip(first, second, strict=True):
        theirs = _resampled(other)
        for name, ours in _resampled(one).items():
            pair = np.stack((ours, theirs[name]))  # (2, 1 + R)
            counted = np.where(np.abs(pair) < NO_DIFFERENCE, 0.0, pair)
            differences = counted[0] - counted[1]
            drawn = differences[1:]
            not_better = min(np.sum(drawn <= _TIE), np.sum(drawn >= -_TIE))
            comparisons[name] = {
                "first": float(pair[0, 0]),
                "second": float(pair[1, 0]),
                "difference": float(differences[0]),
                "interval": _interval(drawn, confidence),
                "p_bootstrap": min(1.0, 2 * (int(not_better) + 1) / (RESAMPLES + 1)),
            }
    return comparisons


def _resampled(metric: Metric) -> dict[str, FloatArray]:
    """Each score by name, (1 + R,): of all images, then of images drawn with replacement.

    None of METEOR, which has no terms.
    """
    images = len(metric.terms)
    generator = np.random.default_rng(0)
    if images < 2:
        raise UserError("a single image has no confidence interval")
    if not metric.terms.size:
        return {}
    totals = [metric.terms.sum(axis=0)]
    for _ in range(RESAMPLES):
        times = np.bincount(generator.integers(images, size=images), minlength=images)  # (I,)
        # BLAS spreads this small product over threads, which costs ten times as much.
        totals.append(np.einsum("i,ic->c", times.astype(np.float64), metric.terms))
    return dict(zip(metric.names, metric.of_totals(np.stack(totals)).T, strict=True))


def _interval(samples: FloatArray, confidence: float) -> tuple[float, float]:
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high
