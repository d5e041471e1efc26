"""How far a caption is to be trusted: a calibrated score, and words for a low one.

A caption's confidence is the share of its content words (those that are not in
`captioner.text.function_words`) that are expected among the words with which people describe the
photo. For a picture that the model cannot describe, such as noise or a screenshot, it is near 0.

It is a logistic regression (Platt 1999, *Probabilistic Outputs for Support Vector Machines*; for
shares, Papke and Wooldridge 1996) on how probable the caption's words are under the model, how
many there are, and how unusual the photo is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from captioner.caption.caption import Caption
from captioner.caption.familiarity import Familiarity, FamiliarityConfig, pooled_features
from captioner.errors import UserError

UNSURE_BELOW = 0.25
"""Confidence below which a caption is unsure, unless another limit is given."""

ODD = 1.5
"""Unusualness above which it counts twice; few photos like the training photos have more."""


@dataclass(frozen=True)
class ConfidenceWeights:
    """The weights of the regression: by how much each raises the logit of the confidence.

    intercept: the logit where all below are 0.
    mean_log_probability: a nat of the mean over the caption's words, the ending among them.
    lowest_log_probability: a nat of the least probable word.
    words: a word of the caption.
    unusualness: a unit of the photo's unusualness; see `Familiarity.unusualness`.
    oddness: a unit of it above `ODD`, in addition.
    """

    intercept: float
    mean_log_probability: float
    lowest_log_probability: float
    words: float
    unusualness: float
    oddness: float

    @property
    def tensor(self) -> Tensor:
        """The weights (P + 1,) in the order of the fields, float64."""
        return torch.tensor(
            [
                self.intercept,
                self.mean_log_probability,
                self.lowest_log_probability,
                self.words,
                self.unusualness,
                self.oddness,
            ],
            dtype=torch.float64,
        )


@dataclass(frozen=True)
class ConfidenceConfig:
    """The numbers of a `Confidence`, as `config.json` holds them.

    unsure_below: a caption of less confidence is unsure.
    Raises `UserError` for one that is not between 0 and 1.
    """

    familiarity: FamiliarityConfig
    weights: ConfidenceWeights
    unsure_below: float = UNSURE_BELOW

    def __post_init__(self) -> None:
        if not 0 <= self.unsure_below <= 1:
            raise UserError(f"unsure_below {self.unsure_below} is not between 0 and 1")


class Confidence(nn.Module):
    """Gives captions their confidence; a part of a model that was calibrated.

    It holds for captions searched for as they were in calibration, the best one of a photo; an
    alternative or a sampled caption gets what its own words and the same photo make of it.
    """

    def __init__(self, config: ConfidenceConfig, familiarity: Familiarity | None = None) -> None:
        super().__init__()
        self.config = config
        self.familiarity = Familiarity(config.familiarity) if familiarity is None else familiarity

    def unusualness(self, annotations: Tensor) -> list[float]:
        """How unusual the photos of annotation vectors (B, L, D) are, B numbers."""
        found: list[float] = self.familiarity.unusualness(pooled_features(annotations)).tolist()
        return found

    def judge(self, captions: Sequence[Caption], unusualness: float) -> list[Caption]:
        """Captions of one photo, each with its confidence, and whether the photo is familiar."""
        features = regressors(captions, [unusualness] * len(captions))
        scores = confidences(features, self.config.weights).tolist()
        familiar = unusualness <= self.config.familiarity.unfamiliar_above
        return [
            replace(
                caption,
                confidence=score,
                sure=score >= self.config.unsure_below,
                familiar=familiar,
            )
            for caption, score in zip(captions, scores, strict=True)
        ]


def regressors(captions: Sequence[Caption], unusualness: Sequence[float]) -> Tensor:
    """What the regression is of: (N, P) float64, in the order of the fields of the weights.

    captions: N of them. unusualness: of the photo of each.
    """
    rows = []
    for caption, unusual in zip(captions, unusualness, strict=True):
        words = len(caption.words)
        mean = caption.log_probability / (words + 1)  # The ending counts as well.
        lowest = min(caption.word_log_probabilities, default=mean)
        rows.append((mean, lowest, float(words), unusual, max(0.0, unusual - ODD)))
    return torch.tensor(rows, dtype=torch.float64).view(len(rows), 5)


def confidences(features: Tensor, weights: ConfidenceWeights) -> Tensor:
    """Regressors (N, P) -> confidences (N,), from 0 to 1."""
    intercept, slopes = weights.tensor[0], weights.tensor[1:]
    return torch.sigmoid(intercept + features @ slopes)


def fit_weights(
    features: Tensor, shares: Tensor, counts: Tensor | None = None, ridge: float = 1.0
) -> ConfidenceWeights:
    """Fit the regression by maximum likelihood with a ridge, deterministically.

    features: (N, P) as `regressors` gives them. shares: (N,) what was observed, from 0 to 1.
    counts: (N,) how much each example counts; by default 1.
    ridge: of the squared weights of standardised features; the intercept has none. With examples
        that are told apart without error it is what keeps the weights finite.

    Newton's method, of a convex problem. Raises `UserError` for less than two examples.
    """
    if len(features) < 2:
        raise UserError(f"confidence needs 2 captions or more to fit, and has {len(features)}")
    counts = torch.ones_like(shares) if counts is None else counts
    deviation, mean = torch.std_mean(features, dim=0, correction=0)  # (P,) each
    deviation = torch.where(deviation > 1e-9, deviation, 1.0)
    standard = (features - mean) / deviation  # (N, P)
    design = torch.cat([torch.ones(len(standard), 1, dtype=standard.dtype), standard], dim=1)
    penalty = torch.full((design.shape[1],), ridge, dtype=design.dtype)  # (P + 1,)
    penalty[0] = 1e-6
    weights = torch.zeros(design.shape[1], dtype=design.dtype)  # (P + 1,)
    value = _loss(design, shares, counts, penalty, weights)
    for _ in range(100):
        expected = torch.sigmoid(design @ weights)  # (N,)
        slope = design.T @ (counts * (expected - shares)) + penalty * weights  # (P + 1,)
        spread = counts * expected * (1 - expected)  # (N,)
        curvature = design.T @ (spread[:, None] * design) + torch.diag(penalty)
        step = torch.linalg.solve(curvature, slope)  # (P + 1,)
        share = 1.0
        while share > 1e-6:  # Halved until it is better: Newton's whole step may be too far.
            changed = weights - share * step
            now = _loss(design, shares, counts, penalty, changed)
            if now <= value:
                weights, value = changed, now
                break
            share /= 2
        if share * float(step.abs().max()) < 1e-9:
            break
    slopes = weights[1:] / deviation  # (P,)
    intercept = weights[0] - slopes @ mean
    return ConfidenceWeights(float(intercept), *slopes.tolist())


def with_mean(weights: ConfidenceWeights, features: Tensor, mean: float) -> ConfidenceWeights:
    """The same weights with the intercept that gives regressors (N, P) this mean confidence.

    mean: kept from 0.001 to 0.999, so that the intercept is finite.
    """
    mean = min(max(mean, 0.001), 0.999)
    low, high = -1e4, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        found = confidences(features, replace(weights, intercept=middle))  # (N,)
        low, high = (middle, high) if float(found.mean()) < mean else (low, middle)
    return replace(weights, intercept=(low + high) / 2)


def _loss(
    design: Tensor, shares: Tensor, counts: Tensor, penalty: Tensor, weights: Tensor
) -> float:
    """The negative log-likelihood of weights (P + 1,), with the ridge."""
    logits = design @ weights  # (N,)
    each = nn.functional.softplus(logits) - shares * logits  # (N,)
    return float((counts * each).sum() + (penalty * weights.square()).sum() / 2)
