"""Annotation vectors brought to a mean of 0 and a standard deviation of 1, number by number.

What comes out of a rectifier is never negative: the mean of an annotation vector over many photos
is several times as large as what a photo's own mean differs from it. A decoder that is given
vectors as they are has to find the small difference, through dropout whose noise is as large as
the whole.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from captioner.errors import UserError


class Standardisation(nn.Module):
    """(a - mean) / deviation of annotation vectors a, each of their D numbers by itself.

    mean, deviation: (D,), over the places of training photos; no parameters, but saved with them.
    Without values until they are filled: `reset` and `fit` do, or a model's weights.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        # On the meta device, filling them with anything imports torch's compiler.
        self.register_buffer("mean", torch.empty(size))
        self.register_buffer("deviation", torch.empty(size))

    def reset(self) -> None:
        """Change nothing, until it is fitted."""
        self.mean.zero_()
        self.deviation.fill_(1.0)

    def fit(self, photos: Iterable[Tensor]) -> None:
        """Take mean and deviation of all the annotation vectors given, each batch (B, L, D).

        A number that hardly ever differs is divided by a twentieth of the usual deviation at least.
        Raises `UserError` where there are none, and where they are all alike.
        """
        count = 0
        total = torch.zeros(len(self.mean), dtype=torch.float64)  # (D,)
        squares = torch.zeros_like(total)  # (D,)
        for vectors in photos:
            flat = vectors.detach().flatten(end_dim=1).double().cpu()  # (B * L, D)
            count += len(flat)
            total += flat.sum(dim=0)
            squares += flat.square().sum(dim=0)
        if count == 0:
            raise UserError("annotation vectors are standardised by those of photos: give some")
        mean = total / count  # (D,)
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()  # (D,)
        if not deviation.max() > 0:
            raise UserError("annotation vectors cannot be standardised: all are alike")
        deviation = deviation.clamp(min=0.05 * float(deviation[deviation > 0].median()))
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, annotations: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D), float32 at least."""
        return (annotations - self.mean) / self.deviation
