"""How unlike a photo is those that a model was trained on.

The squared Mahalanobis distance of a photo's features from the mean of training photos (Lee et al.
2018, *A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial
Attacks*). The covariance is that of probabilistic principal components (Tipping and Bishop 1999):
the R directions in which training photos differ most have a variance each, all others share one,
so that what lies outside of the R directions counts as well. The features are the mean and the
standard deviation of the annotation vectors over the L places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.vision.vgg import ANNOTATION_SIZE

FEATURES = 2 * ANNOTATION_SIZE
"""F, how many features a photo has: a mean and a standard deviation for each of the D numbers."""

COMPONENTS = 40
"""R, how many directions have a variance of their own, where there are photos enough."""

FAMILIAR_SHARE = 0.99
"""The share of photos like the training photos that count as familiar."""


@dataclass(frozen=True)
class FamiliarityConfig:
    """The numbers of a `Familiarity` that are no tensors; see there.

    components: R. rest_variance: of each direction outside of the R, in standardised features.
    distance_mean, distance_deviation: mean and standard deviation, over photos like the training
        photos but not among them, of the logarithm of the distance.
    unfamiliar_above: a photo of more unusualness is unlike the training photos.

    Raises `UserError` naming the field that has no such value.
    """

    components: int
    rest_variance: float
    distance_mean: float
    distance_deviation: float
    unfamiliar_above: float

    def __post_init__(self) -> None:
        if not 1 <= self.components < FEATURES:
            raise UserError(f"components {self.components} is not from 1 to {FEATURES - 1}")
        for name in ("rest_variance", "distance_deviation"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} {getattr(self, name)} is not above 0")


def pooled_features(annotations: Tensor) -> Tensor:
    """Annotation vectors (B, L, D) -> features (B, 2D), float64 on the CPU.

    The D means over the L places, then the D standard deviations.
    """
    values = annotations.float()
    deviation, mean = torch.std_mean(values, dim=1, correction=0)  # (B, D) each
    return torch.cat([mean, deviation], dim=1).cpu().double()  # (B, 2D)


class Familiarity(nn.Module):
    """The features of training photos, as a mean and a covariance: how unusual is another photo?

    mean, scale: (F,) mean and standard deviation of each feature. basis: (F, R) orthonormal
    directions of the standardised features. variances: (R,) along them.
    Without values until they are filled: `fit` does, or a model folder.

    All stay on the CPU; they are stored in float32 and computed with in float64.
    """

    mean: Tensor
    scale: Tensor
    basis: Tensor
    variances: Tensor

    def __init__(self, config: FamiliarityConfig) -> None:
        super().__init__()
        self.config = config
        # On the meta device, filling them with anything imports torch's compiler.
        self.register_buffer("mean", torch.empty(FEATURES))
        self.register_buffer("scale", torch.empty(FEATURES))
        self.register_buffer("basis", torch.empty(FEATURES, config.components))
        self.register_buffer("variances", torch.empty(config.components))

    @classmethod
    def fit(
        cls,
        training: Tensor,
        held_out: Tensor,
        components: int = COMPONENTS,
        share: float = FAMILIAR_SHARE,
    ) -> Familiarity:
        """From the features of photos, each kind (N, F).

        training: of photos the model was trained on: the mean and the covariance.
        held_out: of photos like them, but not among them: their unusualness gets a mean of 0 and
            a standard deviation of 1, and `share` of them count as familiar.
        components: R; where there are few training photos, a quarter of them at most.
        Raises `UserError` for less than eight training photos or two others, and where the
        training photos are all alike.
        """
        for name, count, least in (("training", len(training), 8), ("held-out", len(held_out), 2)):
            if count < least:
                raise UserError(
                    f"familiarity needs {least} {name} photos or more, and there are {count}"
                )
        values = training.double()
        scale, mean = torch.std_mean(values, dim=0, correction=0)  # (F,) each
        if not scale.max() > 0:
            raise UserError("familiarity needs training photos that differ, and all are alike")
        # A feature that hardly ever differs would weigh more than all others.
        scale = scale.clamp(min=0.05 * float(scale[scale > 0].median()))
        standard = (values - mean) / scale  # (N, F)
        components = min(components, len(training) // 4)
        spectrum, directions = torch.linalg.eigh(standard.T @ standard / len(training))  # rising
        rest = max(float(spectrum[:-components].clamp(min=0).mean()), 1e-6)
        found = cls(FamiliarityConfig(components, rest, 0.0, 1.0, 0.0))
        found.mean.copy_(mean)
        found.scale.copy_(scale)
        found.basis.copy_(directions[:, -components:].flip(1))
        found.variances.copy_(spectrum[-components:].flip(0).clamp(min=rest))
        logarithms = found.unusualness(held_out)  # (M,)
        spread, centre = torch.std_mean(logarithms, correction=0)
        spread = spread.clamp(min=1e-3)
        found.config = replace(
            found.config,
            distance_mean=float(centre),
            distance_deviation=float(spread),
            unfamiliar_above=float(((logarithms - centre) / spread).quantile(share)),
        )
        return found

    def distance(self, features: Tensor) -> Tensor:
        """Squared Mahalanobis distances (B,) of features (B, F), by feature: 1 is usual."""
        apart = (features.double() - self.mean.double()) / self.scale.double()  # (B, F)
        along = apart @ self.basis.double()  # (B, R)
        outside = (apart.square().sum(dim=1) - along.square().sum(dim=1)).clamp(min=0)  # (B,)
        inside = (along.square() / self.variances.double()).sum(dim=1)  # (B,)
        return (inside + outside / self.config.rest_variance) / apart.shape[1]

    def unusualness(self, features: Tensor) -> Tensor:
        """How unusual photos of features (B, F) are: (B,), float64.

        In standard deviations of the logarithm of the distance: about 0 for a photo like the
        training photos, some 2 for an odd one of them, much more for something else.
        """
        logarithms = self.distance(features).clamp(min=1e-12).log()  # (B,)
        return (logarithms - self.config.distance_mean) / self.config.distance_deviation
