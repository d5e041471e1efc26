"""Confidence intervals of scores, and a test of a difference, over resampled images.

- Intervals: the percentile bootstrap (Efron 1979, *Bootstrap Methods: Another Look at the
  Jackknife*): images are drawn with replacement, as many as there are.
- Paired bootstrap (Koehn 2004, *Statistical Significance Tests for Machine Translation
  Evaluation*, section 4): both systems are scored on the same drawn images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE
from captioner.evaluation.corpus import FloatArray, Metric

RESAMPLES = 1000  # Times that the images are drawn, by the same chance every time.
# A comparison counts scores below this as 0. The COCO evaluation adds 1e-15 to the matches of BLEU,
# so that captions without a match of four words have a BLEU-4 of up to (1e-15) ** (1 / 4) = 1.8e-4.
NOTHING = 2e-4

# Fewest images for intervals and p values to be evidence: if one system is better on all of n
# images, an exact test gives p = 2 / 2^n, the paired bootstrap 0.
FEW_IMAGES = 30

_TIE = 1e-12  # Differences this close are equal up to rounding.
Interval = tuple[float, float]


def confidence_intervals(
    metrics: Sequence[Metric], confidence: float = CONFIDENCE
) -> dict[str, Interval]:
    """The bootstrap interval of every score, by name. Raises `UserError` for a single image."""
    return {
        name: _interval(scores[1:], confidence)
        for metric in metrics
        for name, scores in _resampled(metric).items()
    }


def compare(
    first: Sequence[Metric], second: Sequence[Metric], confidence: float = CONFIDENCE
) -> dict[str, dict[str, Any]]:
    """Compare two systems by every score, by name, of the same metrics and images.

    first, second: their scores. difference: first less second, where scores below `NOTHING` count
    as 0, with its interval by the paired bootstrap. p_bootstrap: two-sided: twice Koehn's share of
    the resamples in which the better system is not better, with one added to both; at most 1.
    """
    found = {}
    for one, other in zip(first, second, strict=True):
        theirs = _resampled(other)
        for name, ours in _resampled(one).items():
            pair = np.stack((ours, theirs[name]))  # (2, 1 + R)
            counted = np.where(np.abs(pair) < NOTHING, 0.0, pair)
            differences = counted[0] - counted[1]
            drawn = differences[1:]
            not_better = min(np.sum(drawn <= _TIE), np.sum(drawn >= -_TIE))
            found[name] = {
                "first": float(pair[0, 0]),
                "second": float(pair[1, 0]),
                "difference": float(differences[0]),
                "interval": _interval(drawn, confidence),
                "p_bootstrap": min(1.0, 2 * (int(not_better) + 1) / (RESAMPLES + 1)),
            }
    return found


def _resampled(metric: Metric) -> dict[str, FloatArray]:
    """Each score by name, (1 + R,): of all images, then of images drawn with replacement.

    None of METEOR, which has no terms.
    """
    images, generator = len(metric.terms), np.random.default_rng(0)
    if images < 2:
        raise UserError("a single image has no confidence interval")
    if not metric.terms.size:
        return {}
    totals = [metric.terms.sum(axis=0)]
    for _ in range(RESAMPLES):
        times = np.bincount(generator.integers(images, size=images), minlength=images)  # (I,)
        totals.append(times @ metric.terms)
    return dict(zip(metric.names, metric.of_totals(np.stack(totals)).T, strict=True))


def _interval(samples: FloatArray, confidence: float) -> Interval:
    low, high = np.quantile(samples, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high
