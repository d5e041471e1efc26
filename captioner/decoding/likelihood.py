"""Cross-entropy of given token sequences under a model: the loss of teacher forcing."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    smoothed, plain = _CrossEntropies.apply(logits, targets, label_smoothing)  # (B, T) each
    return CrossEntropies((smoothed * mask).sum(dim=1), (plain * mask).sum(dim=1))


class _CrossEntropies(torch.autograd.Function):
    """The cross-entropies of each token, smoothed and plain, (B, T) each.

    The gradient is p - (1 - e) [y] - e / V for the smoothing e. Written out, it takes two thirds of
    the time of autograd's, which goes more often through the vocabulary.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, ...]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        log_probabilities = torch.log_softmax(logits, dim=-1, dtype=wide)  # (B, T, V)
        plain = -log_probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
        smoothed = plain.clone()
        if smoothing > 0:
            smoothed = (1 - smoothing) * plain - smoothing * log_probabilities.mean(dim=-1)
        ctx.save_for_backward(log_probabilities, targets)
        ctx.smoothing, ctx.kind = smoothing, logits.dtype
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        log_probabilities, targets = ctx.saved_tensors
        of_logits = log_probabilities.exp()  # (B, T, V)
        if ctx.smoothing > 0:
            of_logits -= ctx.smoothing / of_logits.shape[-1]
        chosen = torch.full_like(gradient, ctx.smoothing - 1).unsqueeze(-1)  # (B, T, 1)
        of_logits.scatter_add_(-1, targets.unsqueeze(-1), chosen)
        of_logits *= gradient.unsqueeze(-1)
        return of_logits.to(ctx.kind), None, None
