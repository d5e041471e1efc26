"""What a captioner is trained to do: say the caption, and look everywhere once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from captioner.errors import UserError


@dataclass(frozen=True)
class ObjectiveConfig:
    """The training objective of soft attention.

    doubly_stochastic: lambda of Xu et al. 2015, equation 14; 0 leaves the term out.
    doubly_stochastic_target: what the attention a place gets over a caption should sum to: `one`
        (the paper's), or `share`, T / L, which a caption of T words can reach.
    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7).

    Raises `UserError` for values out of range.
    """

    doubly_stochastic: float = 1.0
    doubly_stochastic_target: str = "one"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not self.doubly_stochastic >= 0:
            raise UserError(f"objective doubly_stochastic {self.doubly_stochastic} is negative")
        if self.doubly_stochastic_target not in ("one", "share"):
            raise UserError(
                f"objective doubly_stochastic_target {self.doubly_stochastic_target!r} is not "
                "one of one, share"
            )
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"objective label_smoothing {self.label_smoothing} is not in [0, 1)")


def cross_entropy(
    logits: Tensor, targets: Tensor, mask: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Minus log p(y | x) of each caption, summed over its words: (B,), in nats.

    logits (B, T, V), targets (B, T), mask (B, T) boolean, False for padding, which counts for
    nothing. Computed in float32. Xu et al. 2015, equation 14, first term.
    """
    flat = functional.cross_entropy(
        logits.float().flatten(end_dim=1),
        targets.flatten(),
        reduction="none",
        label_smoothing=label_smoothing,
    )  # (B * T,)
    losses: Tensor = flat.view(targets.shape) * mask  # (B, T)
    return losses.sum(dim=1)


def doubly_stochastic_penalty(weights: Tensor, mask: Tensor, target: str = "one") -> Tensor:
    """How unevenly a caption looked at its photo: (B,), sum over places of (1 - sum_t alpha)^2.

    weights (B, T, L), mask (B, T) boolean, False for padding, whose attention is left out.
    target `one`: as written; `share`: T / L in place of 1, with each caption's own T.
    Xu et al. 2015, section 4.2.1 and equation 14, second term: per example, summed over the L
    places, neither divided by L nor by the batch. Computed in float32.
    """
    visible = weights.float() * mask.unsqueeze(-1)  # (B, T, L)
    received = visible.sum(dim=1)  # (B, L)
    if target == "share":
        goal = mask.sum(dim=1, keepdim=True) / weights.shape[-1]  # (B, 1)
    else:
        goal = torch.ones_like(received[:, :1])  # (B, 1)
    return (goal - received).square().sum(dim=1)
