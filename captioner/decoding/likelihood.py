"""Cross-entropy of given token sequences under a model: the loss of teacher forcing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class CrossEntropies(NamedTuple):
    """-log p(y | x) of each sequence, (B,) each, in nats.

    smoothed: with label smoothing, the training loss. plain: without it, and without a gradient.
    """

    smoothed: Tensor
    plain: Tensor


def cross_entropies(
    logits: Tensor, targets: Tensor, mask: Tensor, label_smoothing: float = 0.0
) -> CrossEntropies:
    """-log p(y | x) of each sequence, summed over its tokens, with and without label smoothing.

    logits (B, T, V), targets (B, T), mask (B, T) boolean, False for padding, which adds nothing.
    Computed in float32 at least. Xu et al. 2015, equation 14, first term.
    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7).
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = torch.log_softmax(logits, dim=-1, dtype=wide)  # (B, T, V)
    per_token = -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
    plain = (per_token.detach() * mask).sum(dim=1)  # (B,)
    if label_smoothing > 0:
        uniform = -log_probabilities.mean(dim=-1)  # (B, T)
        per_token = (1 - label_smoothing) * per_token + label_smoothing * uniform
    return CrossEntropies((per_token * mask).sum(dim=1), plain)
