"""How far scores may be trusted: confidence intervals, and tests of a difference.

All of it asks what the scores would have been on other images of the same kind.

- Intervals: the percentile bootstrap (Efron 1979, *Bootstrap Methods: Another Look at the
  Jackknife*): images are drawn with replacement, as many as there are, again and again.
- Paired bootstrap (Koehn 2004, *Statistical Significance Tests for Machine Translation
  Evaluation*, section 4): both systems are scored on the same drawn images.
- Approximate randomisation (Noreen 1989, *Computer-Intensive Methods for Testing Hypotheses*;
  Riezler and Maxwell 2005, *On Some Pitfalls in Automatic Evaluation and Significance Testing for
  MT*, section 3): the captions of the two systems are exchanged for images chosen by chance.

Scores of a corpus that are no means, such as BLEU, are computed anew each time from the sums of
what the images add to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.ngrams import FloatArray, IntArray

_CELLS = 4_000_000
"""How many drawn images are held in memory at once."""

NOTHING = 2e-4
"""A comparison counts scores below this as 0.

The COCO evaluation adds 1e-15 to the matches of BLEU, so that captions without one match of four
words have a BLEU-4 of up to (1e-15) ** (1 / 4) = 1.8e-4 instead of 0, higher or lower by their
length alone. Only where not one caption has four words is it more than that, up to 0.03.
"""

FEW_IMAGES = 30
"""Below so many images a resample cannot stand for other images: see `too_few_images`."""

_TIE = 1e-12
"""Differences that differ by less are the same, but for the order in which they were added up."""


@dataclass(frozen=True)
class Resampling:
    """How chance is asked.

    resamples: how often. confidence: what share of the resamples an interval holds, between 0 and
    1. seed: the same seed gives the same figures.
    Raises `UserError` for values out of range.
    """

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise UserError(f"number of resamples {self.resamples} is not at least 1")
        if not 0 < self.confidence < 1:
            raise UserError(f"confidence {self.confidence} is not between 0 and 1, as 0.95 is")
        if self.seed < 0:
            raise UserError(f"seed {self.seed} of the resamples is below 0")


@dataclass(frozen=True)
class ImageTerms:
    """Scores of a corpus of I images that depend on them only through a sum.

    names: of the M scores. terms: (I, C) what each image adds to the sum.
    scores: gives the scores (..., M) of sums (..., C), each over I images.
    """

    names: tuple[str, ...]
    terms: IntArray | FloatArray
    scores: Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Interval:
    """Between which values a score lies."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two systems, scored on the same images by one metric.

    first, second: their scores. difference: first less second; here, and in what follows, scores
        below `NOTHING` count as 0.
    interval: of the difference, by the paired bootstrap.
    p_bootstrap: of the paired bootstrap; two-sided: twice Koehn's share of the resamples in which
        the system that is better on all images is not better; at most 1.
    p_randomisation: of approximate randomisation; two-sided: the share of exchanges that give a
        difference as large as the one observed, in either direction.
    In both shares one is added to the count and to the number of resamples.
    """

    first: float
    second: float
    difference: float
    interval: Interval
    p_bootstrap: float
    p_randomisation: float


def too_few_images(images: int) -> str | None:
    """A sentence where intervals and p values of so many images are no evidence, else None.

    With few images the bootstrap's intervals are too narrow and its p values too small (of n
    images in which one system is always the better, an exact test of exchanges can give no p
    below 2 / 2^n, but the paired bootstrap gives 0, or what its number of resamples allows).
    """
    if images >= FEW_IMAGES:
        return None
    return (
        f"{images:,} images are too few for intervals and p values to be evidence: "
        f"there should be {FEW_IMAGES} at least"
    )


def mean_terms(name: str, per_image: FloatArray) -> ImageTerms:
    """A score that is the mean of `per_image` (I,)."""
    images = len(per_image)
    return ImageTerms((name,), per_image[:, None], lambda totals: totals / images)


def confidence_intervals(
    scores: Sequence[ImageTerms], resampling: Resampling | None = None
) -> dict[str, Interval]:
    """The bootstrap interval of every score, by name. Raises `UserError` for a single image."""
    resampling = resampling or Resampling()
    terms, _ = _together(scores)
    _check_images(len(terms))
    totals = [drawn @ terms for drawn in _drawn_images(len(terms), resampling)]
    found = _scores(scores, np.concatenate(totals))  # (R, M)
    return dict(zip(_names(scores), _intervals(found, resampling), strict=True))


def compare(
    first: Sequence[ImageTerms],
    second: Sequence[ImageTerms],
    resampling: Resampling | None = None,
) -> dict[str, Comparison]:
    """Compare two systems by every score, by name.

    first, second: the same scores of the same images, in the same order.
    Raises `UserError` for a single image, `ValueError` when scores or images differ in number.
    """
    resampling = resampling or Resampling()
    if _names(first) != _names(second):
        raise ValueError("the two systems have different scores")
    terms, widths = _together(first)
    other, other_widths = _together(second)
    if terms.shape != other.shape or widths != other_widths:
        raise ValueError("the two systems are scored on different images")
    images = len(terms)
    _check_images(images)
    # The second system is always the first and what it has more: so that where both say the same
    # their difference is exactly 0, in whichever order numbers are added up.
    more = other - terms
    total = terms.sum(axis=0)
    scores = _scores(first, np.stack((total, total + more.sum(axis=0))))  # (2, M)
    counted = _counted(scores)
    observed = counted[0] - counted[1]

    resampled = []
    for drawn in _drawn_images(images, resampling):
        totals = drawn @ terms
        other_totals = totals + drawn @ more
        resampled.append(_counted(_scores(first, totals)) - _counted(_scores(first, other_totals)))
    differences = np.concatenate(resampled)  # (R, M)
    not_better = np.minimum((differences <= _TIE).sum(axis=0), (differences >= -_TIE).sum(axis=0))
    p_bootstrap = np.minimum(1.0, 2 * _share(not_better, resampling))

    as_large = np.zeros(len(observed), dtype=np.int64)
    for exchanged in _exchanges(images, resampling):
        moved = exchanged @ more
        here = _counted(_scores(first, total + moved))
        there = _counted(_scores(first, total + more.sum(axis=0) - moved))
        as_large += (np.abs(here - there) >= np.abs(observed) - _TIE).sum(axis=0)
    p_randomisation = _share(as_large, resampling)

    intervals = _intervals(differences, resampling)
    return {
        name: Comparison(
            float(scores[0, column]),
            float(scores[1, column]),
            float(observed[column]),
            intervals[column],
            float(p_bootstrap[column]),
            float(p_randomisation[column]),
        )
        for column, name in enumerate(_names(first))
    }


def _names(scores: Sequence[ImageTerms]) -> list[str]:
    return [name for score in scores for name in score.names]


def _together(scores: Sequence[ImageTerms]) -> tuple[FloatArray, list[int]]:
    """The terms of all scores side by side, and how many each has."""
    terms = [np.asarray(score.terms, dtype=np.float64) for score in scores]
    return np.concatenate(terms, axis=1), [part.shape[1] for part in terms]


def _scores(scores: Sequence[ImageTerms], totals: FloatArray) -> FloatArray:
    """All scores (..., M) of sums (..., C) of their terms side by side."""
    found, first = [], 0
    for score in scores:
        width = score.terms.shape[1]
        found.append(score.scores(totals[..., first : first + width]))
        first += width
    return np.concatenate(found, axis=-1)


def _counted(scores: FloatArray) -> FloatArray:
    """The scores (..., M), but 0 for those below `NOTHING`."""
    return np.where(np.abs(scores) < NOTHING, 0.0, scores)


def _drawn_images(images: int, resampling: Resampling) -> Iterator[FloatArray]:
    """How often each image is drawn: (R, I) in all, some rows at a time."""
    generator = np.random.default_rng([resampling.seed, 0])
    for rows in _chunks(images, resampling.resamples):
        drawn = generator.integers(images, size=(rows, images))
        drawn += images * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * images)
        yield counts.reshape(rows, images).astype(np.float64)


def _exchanges(images: int, resampling: Resampling) -> Iterator[FloatArray]:
    """Which images' captions are exchanged, 1 or 0: (R, I) in all, some rows at a time."""
    generator = np.random.default_rng([resampling.seed, 1])
    for rows in _chunks(images, resampling.resamples):
        yield generator.integers(2, size=(rows, images)).astype(np.float64)


def _chunks(images: int, resamples: int) -> Iterator[int]:
    most = max(1, _CELLS // images)
    for first in range(0, resamples, most):
        yield min(most, resamples - first)


def _intervals(samples: FloatArray, resampling: Resampling) -> list[Interval]:
    """Of each column of samples (R, M) what all but the extreme ones lie between."""
    outside = (1 - resampling.confidence) / 2
    low, high = np.quantile(samples, (outside, 1 - outside), axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def _share(count: IntArray, resampling: Resampling) -> FloatArray:
    return np.asarray((count + 1) / (resampling.resamples + 1))


def _check_images(images: int) -> None:
    if images < 2:
        raise UserError("a single image says nothing about how far a score may be trusted")
