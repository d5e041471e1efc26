"""Confidence intervals of scores, and a test of a difference, over resampled images.

- Intervals: the percentile bootstrap (Efron 1979, *Bootstrap Methods: Another Look at the
  Jackknife*): images are drawn with replacement, as many as there are.
- Paired bootstrap (Koehn 2004, *Statistical Significance Tests for Machine Translation
  Evaluation*, section 4): both systems are scored on the same drawn images.

Corpus scores that are not means, such as BLEU, are recomputed from the sums of their terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE
from captioner.evaluation.corpus import FloatArray, Metric

RESAMPLES = 1000
"""Times that the images are drawn, by the same chance every time."""

NOTHING = 2e-4
"""A comparison counts scores below this as 0.

The COCO evaluation adds 1e-15 to the matches of BLEU, so that captions without a match of four
words have a BLEU-4 of up to (1e-15) ** (1 / 4) = 1.8e-4.
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

    difference: first less second; here and below, scores below `NOTHING` count as 0.
    interval: of the difference, by the paired bootstrap.
    p_bootstrap: two-sided: twice Koehn's share of the resamples in which the better system is not
        better, with one added to the count and to the number of resamples; at most 1.
    """

    first: float
    second: float
    difference: float
    interval: Interval
    p_bootstrap: float


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
    scores: Sequence[Metric], confidence: float = CONFIDENCE
) -> dict[str, Interval]:
    """The bootstrap interval of every score, by name. Raises `UserError` for a single image."""
    joined = _joined(scores)
    samples = joined.of_totals(_resampled(joined.terms))  # (R, M)
    return dict(zip(joined.names, _intervals(samples, confidence), strict=True))


def compare(
    first: Sequence[Metric], second: Sequence[Metric], confidence: float = CONFIDENCE
) -> dict[str, Comparison]:
    """Compare two systems by every score, by name.

    first, second: the same scores of the same images, in the same order.
    """
    one, other = _joined(first), _joined(second)
    # The second system's terms are the first's plus a difference, so that equal captions differ by
    # exactly 0, in any order of summation.
    terms = np.concatenate((one.terms, other.terms - one.terms), axis=1)

    def both(totals: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The scores of both systems and their difference, (..., M) each."""
        own, more = np.split(totals, 2, axis=-1)
        scores = one.of_totals(own), one.of_totals(own + more)
        counted = [np.where(np.abs(each) < NOTHING, 0.0, each) for each in scores]
        return *scores, counted[0] - counted[1]

    *_, differences = both(_resampled(terms))  # (R, M)
    not_better = np.minimum((differences <= _TIE).sum(axis=0), (differences >= -_TIE).sum(axis=0))
    p_values = np.minimum(1.0, 2 * (not_better + 1) / (RESAMPLES + 1))
    figures = np.stack([*both(terms.sum(axis=0)), p_values], axis=1).tolist()  # (M, 4)
    intervals = _intervals(differences, confidence)
    return {
        name: Comparison(ours, theirs, more, interval, p)
        for name, (ours, theirs, more, p), interval in zip(
            one.names, figures, intervals, strict=True
        )
    }


def _resampled(terms: FloatArray) -> FloatArray:
    """Sums (R, C) of terms (I, C) over images drawn with replacement, `RESAMPLES` times."""
    images, generator = len(terms), np.random.default_rng(0)
    draws = (generator.integers(images, size=images) for _ in range(RESAMPLES))
    return np.stack([np.bincount(drawn, minlength=images) @ terms for drawn in draws])


def _intervals(samples: FloatArray, confidence: float) -> list[Interval]:
    """The interval of each column of samples (R, M)."""
    shares = (1 - confidence) / 2, (1 + confidence) / 2
    return [Interval(*edges) for edges in np.quantile(samples, shares, axis=0).T.tolist()]


def _joined(scores: Sequence[Metric]) -> Metric:
    """All scores as one metric, their terms side by side; METEOR, which has none, is left out."""
    scores = [score for score in scores if score.terms.size]
    names = tuple(name for score in scores for name in score.names)
    per_image = np.column_stack([score.per_image for score in scores])
    terms = np.concatenate([score.terms for score in scores], axis=1, dtype=np.float64)
    if len(terms) < 2:
        raise UserError("a single image has no confidence interval")
    edges = np.cumsum([score.terms.shape[1] for score in scores])[:-1]

    def of_totals(totals: FloatArray) -> FloatArray:
        parts = zip(scores, np.split(totals, edges, axis=-1), strict=True)
        return np.concatenate([score.of_totals(part) for score, part in parts], axis=-1)

    return Metric(names, per_image, terms, of_totals)
