"""How probable given tokens are under a model: what teacher forcing is for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def cross_entropy(
    logits: Tensor, targets: Tensor, mask: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Minus log p(y | x) of each sequence, summed over its tokens: (B,), in nats.

    logits (B, T, V), targets (B, T), mask (B, T) boolean, False for padding, which counts for
    nothing. Computed in float32 at least. Xu et al. 2015, equation 14, first term.
    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7).
    """
    flat = functional.cross_entropy(
        (logits if logits.dtype == torch.float64 else logits.float()).flatten(end_dim=1),
        targets.flatten(),
        reduction="none",
        label_smoothing=label_smoothing,
    )  # (B * T,)
    losses: Tensor = flat.view(targets.shape) * mask  # (B, T)
    return losses.sum(dim=1)
