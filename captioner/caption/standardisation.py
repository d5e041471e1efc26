"""Standardises annotation vectors to mean 0 and standard deviation 1, channel by channel.

A rectifier's outputs are never negative: their mean over many photos is several times as large as
the difference between photos, and dropout's noise is proportional to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from captioner.errors import UserError


class Standardisation(nn.Module):
    """(a - mean) / deviation of annotation vectors a, for each of their D channels.

    mean, deviation: (D,), over the positions of training photos; buffers, saved with the model.
    The identity until `fit` or a model's weights fill them.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.empty(size))
        self.register_buffer("deviation", torch.empty(size))
        if not self.mean.is_meta:  # Filling them there imports torch's compiler.
            self.mean.zero_()
            self.deviation.fill_(1.0)

    def fit(self, photos: Iterable[Tensor]) -> None:
        """Estimate mean and deviation from batches of annotation vectors (B, L, D).

        The deviation of a nearly constant channel is raised to a twentieth of the median.
        Raises `UserError` for vectors that are all equal.
        """
        count = 0
        total = torch.zeros(len(self.mean), dtype=torch.float64)  # (D,)
        squares = torch.zeros_like(total)  # (D,)
        for vectors in photos:
            flat = vectors.detach().flatten(end_dim=1).cpu().double()  # (B * L, D)
            count += len(flat)
            total += flat.sum(dim=0)
            squares += flat.square().sum(dim=0)
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
