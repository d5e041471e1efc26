"""How probable given tokens are under a model: what teacher forcing is for.

The logits of a batch are the largest tensor of most steps: a few thousand tokens by a vocabulary of
some ten thousand. So they are gone through a few rows at a time, which stay in a processor's
cache, and nothing of their size is made but their gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_AT_ONCE_ON_CPU, _AT_ONCE = 1 << 18, 1 << 26
"""How many logits are gone through together: a megabyte of float32 on a CPU, more elsewhere."""


class CrossEntropies(NamedTuple):
    """Minus log p(y | x) of each sequence, (B,) each, in nats.

    smoothed: with label smoothing, as it is trained on. plain: without, and without a gradient.
    """

    smoothed: Tensor
    plain: Tensor


def cross_entropy(
    logits: Tensor, targets: Tensor, mask: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Minus log p(y | x) of each sequence, summed over its tokens: (B,), in nats.

    logits (B, T, V), targets (B, T), mask (B, T) boolean, False for padding, which counts for
    nothing. Computed in float32 at least. Xu et al. 2015, equation 14, first term.
    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7).

    It has a gradient, and no second one.
    """
    return cross_entropies(logits, targets, mask, label_smoothing).smoothed


def cross_entropies(
    logits: Tensor, targets: Tensor, mask: Tensor, label_smoothing: float = 0.0
) -> CrossEntropies:
    """As `cross_entropy`, with and without label smoothing at once."""
    smoothed, plain = _TokenCrossEntropy.apply(
        logits.flatten(end_dim=1), targets.flatten(), label_smoothing
    )  # (B * T,) each
    return CrossEntropies(
        (smoothed.view(targets.shape) * mask).sum(dim=1),
        (plain.view(targets.shape) * mask).sum(dim=1),
    )


class _TokenCrossEntropy(torch.autograd.Function):
    """Of each of N tokens.

    With z the logits less the highest of them, y the target, e the label smoothing and V the size
    of the vocabulary: (1 - e) (log sum exp z - z_y) + e (log sum exp z - mean z), of which the
    gradient is softmax(z) - (1 - e) onehot(y) - e / V.
    """

    @staticmethod
    def forward(
        context: Any, logits: Tensor, targets: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Logits (N, V), targets (N,) -> smoothed and plain (N,) each."""
        kind = torch.promote_types(logits.dtype, torch.float32)
        highest = logits.new_empty(len(logits), dtype=kind)  # (N,)
        log_sum, of_target, mean = (torch.empty_like(highest) for _ in range(3))
        for rows in _few_rows(logits):
            some = logits[rows].to(kind, copy=True)  # (n, V)
            highest[rows] = some.amax(dim=1)
            some.sub_(highest[rows].unsqueeze(1))
            of_target[rows] = some.gather(1, targets[rows].unsqueeze(1)).squeeze(1)
            if label_smoothing > 0:
                mean[rows] = some.mean(dim=1)
            log_sum[rows] = some.exp_().sum(dim=1).log_()
        plain = log_sum - of_target
        smoothed = plain.clone()
        if label_smoothing > 0:
            smoothed = (1 - label_smoothing) * plain + label_smoothing * (log_sum - mean)
        context.save_for_backward(logits, targets, highest, log_sum)
        context.label_smoothing = label_smoothing
        context.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(context: Any, of_smoothed: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the smoothed ones (N,) -> that of the logits (N, V)."""
        logits, targets, highest, log_sum = context.saved_tensors
        label_smoothing = context.label_smoothing
        gradient = torch.empty_like(logits)  # (N, V)
        for rows in _few_rows(logits):
            some = logits[rows].to(highest.dtype, copy=True)  # (n, V)
            some.sub_(highest[rows].unsqueeze(1)).sub_(log_sum[rows].unsqueeze(1)).exp_()
            some.sub_(label_smoothing / some.shape[1])
            kept = some.new_full((some.shape[0], 1), label_smoothing - 1)  # (n, 1)
            some.scatter_add_(1, targets[rows].unsqueeze(1), kept)
            gradient[rows] = some.mul_(of_smoothed[rows].unsqueeze(1))
        return gradient, None, None


def _few_rows(logits: Tensor) -> Iterator[slice]:
    """Rows of logits (N, V), a few at a time."""
    at_once = _AT_ONCE_ON_CPU if logits.device.type == "cpu" else _AT_ONCE
    count = max(1, at_once // max(1, logits.shape[1]))
    for first in range(0, len(logits), count):
        yield slice(first, first + count)
