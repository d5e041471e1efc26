"""Confidence intervals of scores, and tests of a difference, over resampled images.

- Intervals: the percentile bootstrap (Efron 1979, *Bootstrap Methods: Another Look at the
  Jackknife*): images are drawn with replacement, as many as there are.
- Paired bootstrap (Koehn 2004, *Statistical Significance Tests for Machine Translation
  Evaluation*, section 4): both systems are scored on the same drawn images.
- Approximate randomisation (Noreen 1989, *Computer-Intensive Methods for Testing Hypotheses*;
  Riezler and Maxwell 2005, *On Some Pitfalls in Automatic Evaluation and Significance Testing for
  MT*, section 3): the captions of the two systems are exchanged for images chosen by chance.

Corpus scores that are not means, such as BLEU, are recomputed from the sums of their terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.corpus import FloatArray, IntArray
from captioner.evaluation.evaluation_options import Resampling
from captioner.evaluation.metric import Metric

NOTHING = 2e-4
"""A comparison counts scores below this as 0.

The COCO evaluation adds 1e-15 to the matches of BLEU, so that captions without a match of four
words have a BLEU-4 of up to (1e-15) ** (1 / 4) = 1.8e-4, depending on their length. If no caption
has four words it is up to 0.03.
"""

FEW_IMAGES = 30
"""Fewest images for intervals and p values; see `too_few_images`."""

_TIE = 1e-12
"""Differences this close are equal up to rounding."""


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two systems, scored on the same images by one metric.

    first, second: their scores. difference: first less second; here and below, scores below
        `NOTHING` count as 0.
    interval: of the difference, by the paired bootstrap.
    p_bootstrap: of the paired bootstrap, two-sided: twice Koehn's share of the resamples in which
        the better system is not better; at most 1.
    p_randomisation: of approximate randomisation, two-sided: the share of exchanges with a
        difference as large as the observed one.
    Both shares add one to the count and to the number of resamples.
    """

    first: float
    second: float
    difference: float
    interval: Interval
    p_bootstrap: float
    p_randomisation: float


def too_few_images(images: int) -> str | None:
    """A warning if intervals and p values of so many images are no evidence, else None.

    With few images the bootstrap's intervals are too narrow and its p values too small: if one
    system is better on all of n images, an exact test gives p = 2 / 2^n, the paired bootstrap 0.
    """
    if images >= FEW_IMAGES:
        return None
    return (
        f"{images:,} images are too few for intervals and p values to be evidence: "
        f"there should be {FEW_IMAGES} at least"
    )


def confidence_intervals(
    scores: Sequence[Metric], resampling: Resampling | None = None
) -> dict[str, Interval]:
    """The bootstrap interval of every score, by name. Raises `UserError` for a single image."""
    resampling = resampling or Resampling()
    terms = _together(scores)
    totals = np.stack([drawn @ terms for drawn in _drawn_images(len(terms), resampling)])
    found = _scores(scores, totals)  # (R, M)
    return dict(zip(_names(scores), _intervals(found, resampling), strict=True))


def compare(
    first: Sequence[Metric],
    second: Sequence[Metric],
    resampling: Resampling | None = None,
) -> dict[str, Comparison]:
    """Compare two systems by every score, by name.

    first, second: the same scores of the same images, in the same order.
    Raises `UserError` for a single image.
    """
    resampling = resampling or Resampling()
    terms, other = _together(first), _together(second)
    images = len(terms)
    # The second system's terms are the first's plus a difference, so that equal captions differ by
    # exactly 0, in any order of summation.
    more = other - terms
    total = terms.sum(axis=0)
    scores = _scores(first, np.stack((total, total + more.sum(axis=0))))  # (2, M)
    counted = _counted(scores)
    observed = counted[0] - counted[1]

    drawn = [(each @ terms, each @ more) for each in _drawn_images(images, resampling)]
    totals, more_totals = np.stack(drawn, axis=1)  # (R, C) each
    differences = _counted(_scores(first, totals)) - _counted(_scores(first, totals + more_totals))
    not_better = np.minimum((differences <= _TIE).sum(axis=0), (differences >= -_TIE).sum(axis=0))
    p_bootstrap = np.minimum(1.0, 2 * _share(not_better, resampling))

    moved = np.stack([each @ more for each in _exchanges(images, resampling)])  # (R, C)
    here = _counted(_scores(first, total + moved))
    there = _counted(_scores(first, total + more.sum(axis=0) - moved))
    as_large = (np.abs(here - there) >= np.abs(observed) - _TIE).sum(axis=0)
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


def _names(scores: Sequence[Metric]) -> list[str]:
    return [name for score in scores for name in score.names]


def _together(scores: Sequence[Metric]) -> FloatArray:
    """The terms of all scores side by side. Raises `UserError` for a single image."""
    terms = np.concatenate([score.terms for score in scores], axis=1, dtype=np.float64)
    if len(terms) < 2:
        raise UserError("a single image has no confidence interval")
    return terms


def _scores(scores: Sequence[Metric], totals: FloatArray) -> FloatArray:
    """All scores (..., M) of sums (..., C) of their terms side by side."""
    found, first = [], 0
    for score in scores:
        width = score.terms.shape[1]
        found.append(score.of_totals(totals[..., first : first + width]))
        first += width
    return np.concatenate(found, axis=-1)


def _counted(scores: FloatArray) -> FloatArray:
    """The scores (..., M), 0 for those below `NOTHING`."""
    return np.where(np.abs(scores) < NOTHING, 0.0, scores)


def _drawn_images(images: int, resampling: Resampling) -> Iterator[IntArray]:
    """The number of draws of each image (I,), for each resample."""
    generator = np.random.default_rng([resampling.seed, 0])
    for _ in range(resampling.resamples):
        yield np.bincount(generator.integers(images, size=images), minlength=images)


def _exchanges(images: int, resampling: Resampling) -> Iterator[IntArray]:
    """1 for images whose captions are exchanged (I,), for each resample."""
    generator = np.random.default_rng([resampling.seed, 1])
    for _ in range(resampling.resamples):
        yield generator.integers(2, size=images)


def _intervals(samples: FloatArray, resampling: Resampling) -> list[Interval]:
    """The percentile interval of each column of samples (R, M)."""
    outside = (1 - resampling.confidence) / 2
    low, high = np.quantile(samples, (outside, 1 - outside), axis=0)
    return [Interval(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def _share(count: IntArray, resampling: Resampling) -> FloatArray:
    return np.asarray((count + 1) / (resampling.resamples + 1))
