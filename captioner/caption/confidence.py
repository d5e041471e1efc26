"""How far a caption is to be trusted: a calibrated score, and words for a low one.

A caption's confidence is the share of its content words that people are expected to use of the
photo. It is a logistic regression (Platt 1999, *Probabilistic Outputs for Support Vector Machines*;
for shares, Papke and Wooldridge 1996) on the log-probabilities of its words, their number, and how
unusual the photo is.

A photo is unusual when its features lie far from those of training photos: a Mahalanobis distance
(Lee et al. 2018, *A Simple Unified Framework for Detecting Out-of-Distribution Samples and
Adversarial Attacks*) with the covariance of probabilistic principal components (Tipping and Bishop
1999). The features are logarithms of the mean and the standard deviation of the annotation vectors:
plain colours and noise have deviations near zero, which only a logarithm tells from small ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from captioner.caption.written_caption import Caption
from captioner.errors import UserError
from captioner.schema import SIZE, Config

COMPONENTS = 40
"""R, the directions with a variance of their own; a quarter of the training photos at most."""

FAMILIAR_SHARE = 0.99
"""The share of held-out photos that count as familiar."""

FLOOR = 0.05
"""Added to features before the logarithm, as a share of the mean feature."""

ODD = 1.5
"""Unusualness above which it counts a second time."""


class FamiliarityConfig(Config):
    """The numbers of a `Familiarity` that are not tensors."""

    components: int = Field(ge=1, le=SIZE, description="R, directions with a variance of their own")
    floor: float = Field(gt=0, description="added to features before the logarithm")
    rest_variance: float = Field(gt=0, description="of each direction outside of the R")
    distance_mean: float = Field(
        description="mean of the logarithm of the distance over held-out photos"
    )
    distance_deviation: float = Field(gt=0, description="its standard deviation over them")
    unfamiliar_above: float = Field(description="photos of more unusualness are unfamiliar")


class ConfidenceWeights(Config):
    """By how much each regressor raises the logit of the confidence."""

    intercept: float = Field(description="logit where all regressors are 0")
    mean_log_probability: float = Field(
        description="of the mean over the caption's words and its ending, in nats"
    )
    lowest_log_probability: float = Field(description="of the least probable word, in nats")
    words: float = Field(description="of their number")
    unusualness: float = Field(description="of the photo's unusualness")
    oddness: float = Field(description=f"of unusualness above {ODD}")


class ConfidenceConfig(Config):
    """The numbers of a `Confidence`, as `config.json` holds them."""

    familiarity: FamiliarityConfig
    weights: ConfidenceWeights
    unsure_below: float = Field(
        0.25, ge=0, le=1, description="captions of less confidence are unsure"
    )


class Familiarity(nn.Module):
    """Mean and covariance of the features of training photos.

    mean, scale: (F,) of the logarithm of each feature. basis: (F, R), orthonormal. variances: (R,)
    along it. Empty until `fit` or a model folder fills them; kept on the CPU, used in float64.
    """

    mean: Tensor
    scale: Tensor
    basis: Tensor
    variances: Tensor

    def __init__(self, config: FamiliarityConfig, annotation_size: int) -> None:
        super().__init__()
        self.config = config
        features = 2 * annotation_size  # F
        # Uninitialised: filling tensors on the meta device imports torch's compiler.
        self.register_buffer("mean", torch.empty(features))
        self.register_buffer("scale", torch.empty(features))
        self.register_buffer("basis", torch.empty(features, config.components))
        self.register_buffer("variances", torch.empty(config.components))

    @classmethod
    def fit(cls, training: Tensor, held_out: Tensor) -> Familiarity:
        """From pooled features (N, F) of 8 training photos or more, and (M, F) of others like them.

        The held-out photos scale both parts of the distance: a covariance of few photos is too
        large inside of the R directions and too small outside of them.
        Raises `UserError` for training photos all alike.
        """
        floor = FLOOR * float(training.clamp(min=0).mean())
        logarithms = (training.double().clamp(min=0) + floor).log()  # (N, F)
        scale, mean = torch.std_mean(logarithms, dim=0, correction=0)  # (F,) each
        if not scale.max() > 0:
            raise UserError("familiarity needs training photos that differ, and all are alike")
        scale = scale.clamp(min=0.5 * float(scale[scale > 0].median()))
        size = training.shape[1]
        components = min(COMPONENTS, len(training) // 4)
        _, lengths, directions = torch.linalg.svd((logarithms - mean) / scale, full_matrices=False)
        spectrum = lengths.square() / len(training)  # (min(N, F),), descending
        rest = max(float(spectrum[components:].sum()) / (size - components), 1e-6)
        config = FamiliarityConfig(
            components=components,
            floor=floor,
            rest_variance=1.0,
            distance_mean=0.0,
            distance_deviation=1.0,
            unfamiliar_above=0.0,
        )
        found = cls(config, size // 2)
        found.mean.copy_(mean)
        found.scale.copy_(scale)
        found.basis.copy_(directions[:components].T)
        found.variances.copy_(spectrum[:components].clamp(min=rest))
        inside, outside = (part.mean().clamp(min=1e-6) for part in found._distances(held_out))
        found.variances.mul_(inside)
        found.config = found.config.replace(rest_variance=float(outside))
        logarithms = found.unusualness(held_out)  # (M,)
        deviation, centre = torch.std_mean(logarithms, correction=0)
        deviation = deviation.clamp(min=1e-3)
        limit = ((logarithms - centre) / deviation).quantile(FAMILIAR_SHARE)
        found.config = found.config.replace(
            distance_mean=float(centre),
            distance_deviation=float(deviation),
            unfamiliar_above=float(limit),
        )
        return found

    def unusualness(self, features: Tensor) -> Tensor:
        """Pooled features (B, F) -> (B,), float64: about 0 for photos like the training photos.

        In standard deviations, over held-out photos, of the logarithm of the distance.
        """
        inside, outside = self._distances(features)  # (B,) each
        logarithms = ((inside + outside) / 2).clamp(min=1e-12).log()  # (B,)
        return (logarithms - self.config.distance_mean) / self.config.distance_deviation

    def _distances(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances a direction, (B,) each, inside of the R directions and outside."""
        logarithms = (features.double().clamp(min=0) + self.config.floor).log()  # (B, F)
        apart = (logarithms - self.mean.double()) / self.scale.double()  # (B, F)
        along = apart @ self.basis.double()  # (B, R)
        inside = (along.square() / self.variances.double()).mean(dim=1)  # (B,)
        outside = (apart.square().sum(dim=1) - along.square().sum(dim=1)).clamp(min=0)  # (B,)
        others = len(self.mean) - self.config.components
        return inside, outside / (others * self.config.rest_variance)


class Confidence(nn.Module):
    """Gives captions their confidence; part of a calibrated model.

    It is calibrated for the best caption of the model's own search.
    """

    def __init__(self, config: ConfidenceConfig, familiarity: Familiarity) -> None:
        super().__init__()
        self.config = config
        self.familiarity = familiarity

    def unusualness(self, annotations: Tensor) -> list[float]:
        """How unusual the photos of annotation vectors (B, L, D) are."""
        found: list[float] = self.familiarity.unusualness(pooled_features(annotations)).tolist()
        return found

    def judge(self, captions: Sequence[Caption], unusualness: float) -> list[Caption]:
        """Captions of one photo with `confidence`, `sure` and `familiar` set."""
        features = regressors(captions, [unusualness] * len(captions))
        scores = confidences(features, self.config.weights).tolist()
        familiar = unusualness <= self.config.familiarity.unfamiliar_above
        limit = self.config.unsure_below
        return [
            replace(caption, confidence=score, sure=score >= limit, familiar=familiar)
            for caption, score in zip(captions, scores, strict=True)
        ]


def pooled_features(annotations: Tensor) -> Tensor:
    """Annotation vectors (B, L, D) of a square map -> (B, 2D), float64 on the CPU.

    Means, then standard deviations over places. Places at the border are left out of maps with
    four rows or more: they hold the padding of the convolutions.
    """
    side = math.isqrt(annotations.shape[1])
    size = annotations.shape[2]
    values = annotations.float().view(-1, side, side, size)  # (B, rows, columns, D)
    if side >= 4:
        values = values[:, 1:-1, 1:-1]  # (B, rows - 2, columns - 2, D)
    deviation, mean = torch.std_mean(values, dim=(1, 2), correction=0)  # (B, D) each
    return torch.cat([mean, deviation], dim=1).cpu().double()  # (B, 2D)


def regressors(captions: Sequence[Caption], unusualness: Sequence[float]) -> Tensor:
    """N captions and the unusualness of their photos -> (N, 5), float64.

    Columns are in the order of `ConfidenceWeights`, without the intercept.
    """
    rows = []
    for caption, unusual in zip(captions, unusualness, strict=True):
        words = len(caption.words)
        mean = caption.log_probability / (words + 1)  # with the ending
        lowest = min(caption.word_log_probabilities, default=mean)
        rows.append((mean, lowest, float(words), unusual, max(0.0, unusual - ODD)))
    return torch.tensor(rows, dtype=torch.float64).view(-1, 5)


def confidences(features: Tensor, weights: ConfidenceWeights) -> Tensor:
    """Regressors (N, 5) -> confidences (N,), from 0 to 1."""
    _, *slopes = (value for _, value in weights)
    return torch.sigmoid(weights.intercept + features @ torch.tensor(slopes).double())


def fit_weights(
    features: Tensor, shares: Tensor, counts: Tensor | None = None, ridge: float = 1.0
) -> ConfidenceWeights:
    """Maximum likelihood with a ridge on standardised regressors; deterministic.

    features: (N, 5). shares: (N,), observed, from 0 to 1. counts: (N,), how much each row counts.
    """
    counts = torch.ones_like(shares) if counts is None else counts
    deviation, mean = torch.std_mean(features, dim=0, correction=0)  # (5,) each
    deviation = torch.where(deviation > 1e-9, deviation, 1.0)
    standard = (features - mean) / deviation  # (N, 5)
    weights = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=200,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = weights[0] + standard @ weights[1:]  # (N,)
        each = functional.binary_cross_entropy_with_logits(logits, shares, reduction="none")
        total = (counts * each).sum() + ridge / 2 * weights[1:].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    found = weights.detach()
    slopes = found[1:] / deviation  # (5,)
    values = [float(found[0] - slopes @ mean), *slopes.tolist()]
    return ConfidenceWeights(**dict(zip(ConfidenceWeights.model_fields, values, strict=True)))
