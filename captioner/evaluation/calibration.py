"""Whether a score means what it says: reliability, its error, and telling two groups apart.

Expected calibration error in bins of equal width is Naeini et al. 2015, *Obtaining Well Calibrated
Probabilities Using Bayesian Binning*, and Guo et al. 2017, *On Calibration of Modern Neural
Networks*; here what is observed is a share between 0 and 1, not only a right or a wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.errors import UserError


@dataclass(frozen=True)
class ReliabilityBin:
    """The items whose score lies from `low` up to `high`, which only the last bin includes.

    predicted, observed: the means of their scores and of what was observed. count: how many.
    """

    low: float
    high: float
    predicted: float
    observed: float
    count: int


@dataclass(frozen=True)
class Reliability:
    """Scores held against what was observed.

    bins: those that hold an item, lowest first. error: the expected calibration error: the mean
    over the items of how far the mean score of their bin is from its mean observation.
    squared_error: the mean of (score - observed)^2, Brier's score.
    """

    bins: tuple[ReliabilityBin, ...]
    error: float
    squared_error: float


def reliability(
    predicted: Sequence[float], observed: Sequence[float], bins: int = 10
) -> Reliability:
    """Hold N scores against N observations, both from 0 to 1, in so many bins of equal width.

    Raises `UserError` for none at all, and for less than one bin; `ValueError` for as many of the
    one as not of the other.
    """
    if bins < 1:
        raise UserError(f"the number of bins, {bins}, is not at least 1")
    if len(predicted) != len(observed):
        raise ValueError(f"there are {len(predicted)} scores but {len(observed)} observations")
    if not len(predicted):
        raise UserError("there is nothing to measure the reliability of")
    scores, seen = np.asarray(predicted, np.float64), np.asarray(observed, np.float64)  # (N,)
    places = np.minimum((scores * bins).astype(int), bins - 1)  # (N,)
    found, error = [], 0.0
    for place in range(bins):
        inside = places == place
        count = int(inside.sum())
        if count:
            means = float(scores[inside].mean()), float(seen[inside].mean())
            found.append(ReliabilityBin(place / bins, (place + 1) / bins, *means, count))
            error += count * abs(means[0] - means[1])
    squared = float(((scores - seen) ** 2).mean())
    return Reliability(tuple(found), error / len(scores), squared)


def auroc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """How well a score tells two groups apart: the area under the ROC curve.

    It is the probability that a random one of `higher` scores above a random one of `lower`, a
    tie being half (Mann and Whitney 1947; Hanley and McNeil 1982): 1 for always, 0.5 for chance.

    Raises `UserError` when a group is empty.
    """
    if not len(higher) or not len(lower):
        raise UserError("there is nothing to tell apart: one of the two groups is empty")
    first, second = np.asarray(higher, np.float64), np.sort(np.asarray(lower, np.float64))
    below = np.searchsorted(second, first, side="left")
    not_above = np.searchsorted(second, first, side="right")
    return float((below + not_above).mean() / (2 * len(second)))
