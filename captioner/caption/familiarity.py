"""How unlike a photo is those that a model was trained on.

The squared Mahalanobis distance of a photo's features from the mean of training photos (Lee et al.
2018, *A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial
Attacks*). The covariance is that of probabilistic principal components (Tipping and Bishop 1999):
the R directions in which training photos differ most have a variance each, all others share one,
so that what lies outside of the R directions counts as well.

The features are logarithms of the mean and the standard deviation of the annotation vectors over
the places that are not at the border of the photo:

- A vector at the border tells of the zeros that the convolutions pad a photo with (Islam et al.
  2020, *How Much Position Information Do Convolutional Neural Networks Encode?*). Noise looks alike
  all over, yet its vectors at the border differ from the others as much as those of a photo do.
- In plain numbers, a standard deviation of almost nothing, as of noise or one colour, is no
  farther from that of a photo than twice as much is; its logarithm is far from both.

The inside, the R directions, and the outside count the same, each in relation to what it is on the
mean of photos that the covariance was not fitted to: of fewer photos than features, the greatest
variances come out too great and the others too small (Ledoit and Wolf 2004, *A Well-Conditioned
Estimator for Large-Dimensional Covariance Matrices*).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.vision.vgg import ANNOTATION_SIZE

FEATURES = 2 * ANNOTATION_SIZE
"""F, how many features a photo has: a mean and a standard deviation for each of the D numbers."""

COMPONENTS = 40
"""R, how many directions have a variance of their own, where there are photos enough."""

FLOOR = 0.05
"""What is added to features before the logarithm, as a share of the training photos' mean feature:
how much nothing differs from next to nothing."""

FAMILIAR_SHARE = 0.99
"""The share of photos like the training photos that count as familiar."""


@dataclass(frozen=True)
class FamiliarityConfig:
    """The numbers of a `Familiarity` that are no tensors; see there.

    components: R. floor: what is added to features before the logarithm. rest_variance: of each
        direction outside of the R, in standardised features.
    distance_mean, distance_deviation: mean and standard deviation, over photos like the training
        photos but not among them, of the logarithm of the distance.
    unfamiliar_above: a photo of more unusualness is unlike the training photos.

    Raises `UserError` naming the field that has no such value.
    """

    components: int
    floor: float
    rest_variance: float
    distance_mean: float
    distance_deviation: float
    unfamiliar_above: float

    def __post_init__(self) -> None:
        if not 1 <= self.components < FEATURES:
            raise UserError(f"components {self.components} is not from 1 to {FEATURES - 1}")
        for name in ("floor", "rest_variance", "distance_deviation"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} {getattr(self, name)} is not above 0")


def pooled_features(annotations: Tensor) -> Tensor:
    """Annotation vectors (B, L, D) of a square map -> features (B, F), float64 on the CPU.

    The D means over places, then the D standard deviations. The outermost places of the map do not
    count, unless it has less than four rows.
    """
    count, places, size = annotations.shape
    side = math.isqrt(places)
    values = annotations.float().view(count, side, side, size)  # (B, rows, columns, D)
    if side >= 4:
        values = values[:, 1:-1, 1:-1]  # (B, rows - 2, columns - 2, D)
    values = values.flatten(1, 2)  # (B, places, D)
    deviation, mean = torch.std_mean(values, dim=1, correction=0)  # (B, D) each
    return torch.cat([mean, deviation], dim=1).cpu().double()  # (B, 2D)


class Familiarity(nn.Module):
    """The features of training photos, as a mean and a covariance: how unusual is another photo?

    mean, scale: (F,) mean and standard deviation of the logarithm of each feature. basis: (F, R)
    orthonormal directions of the features so standardised. variances: (R,) along them.
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

        training: of photos the model was trained on: the mean and the directions.
        held_out: of photos like them, but not among them: how far inside and outside of these
            directions is usual. Their unusualness gets a mean of 0 and a standard deviation of 1,
            and `share` of them count as familiar.
        components: R; where there are few training photos, a quarter of them at most.
        Raises `UserError` for less than eight training photos or two others, and where the
        training photos are all alike.
        """
        for name, count, least in (("training", len(training), 8), ("held-out", len(held_out), 2)):
            if count < least:
                raise UserError(
                    f"familiarity needs {least} {name} photos or more, and there are {count}"
                )
        values = training.double().clamp(min=0)
        floor = FLOOR * float(values.mean())
        values = (values + floor).log()  # (N, F)
        scale, mean = torch.std_mean(values, dim=0, correction=0)  # (F,) each
        if not scale.max() > 0:  # Not a number where all features are 0.
            raise UserError("familiarity needs training photos that differ, and all are alike")
        # A feature that hardly ever differs would weigh more than all others.
        scale = scale.clamp(min=0.5 * float(scale[scale > 0].median()))
        standard = (values - mean) / scale  # (N, F)
        components = min(components, len(training) // 4)
        _, lengths, directions = torch.linalg.svd(standard, full_matrices=False)
        spectrum = lengths.square() / len(training)  # (min(N, F),), the greatest first
        rest = max(float(spectrum[components:].sum()) / (FEATURES - components), 1e-6)
        found = cls(FamiliarityConfig(components, floor, 1.0, 0.0, 1.0, 0.0))
        found.mean.copy_(mean)
        found.scale.copy_(scale)
        found.basis.copy_(directions[:components].T)
        found.variances.copy_(spectrum[:components].clamp(min=rest))
        inside, outside = (each.mean().clamp(min=1e-6) for each in found._parts(held_out))
        found.variances.mul_(inside)
        found.config = replace(found.config, rest_variance=float(outside))
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
        """Squared Mahalanobis distances (B,) of features (B, F): 1 is usual.

        Half of it is from the R directions, half from outside of them.
        """
        inside, outside = self._parts(features)  # (B,) each
        return (inside + outside) / 2

    def _parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The distance inside of the R directions and outside of them, (B,) each, by direction."""
        logarithms = (features.double().clamp(min=0) + self.config.floor).log()  # (B, F)
        apart = (logarithms - self.mean.double()) / self.scale.double()  # (B, F)
        along = apart @ self.basis.double()  # (B, R)
        inside = (along.square() / self.variances.double()).mean(dim=1)  # (B,)
        outside = (apart.square().sum(dim=1) - along.square().sum(dim=1)).clamp(min=0)  # (B,)
        others = FEATURES - self.config.components
        return inside, outside / (others * self.config.rest_variance)

    def unusualness(self, features: Tensor) -> Tensor:
        """How unusual photos of features (B, F) are: (B,), float64.

        In standard deviations of the logarithm of the distance: about 0 for a photo like the
        training photos, some 2 for an odd one of them, much more for something else.
        """
        logarithms = self.distance(features).clamp(min=1e-12).log()  # (B,)
        return (logarithms - self.config.distance_mean) / self.config.distance_deviation
