"""What a captioner is trained to do: say the caption; for soft attention, look everywhere once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from captioner.errors import UserError


@dataclass(frozen=True)
class ObjectiveConfig:
    """The training objective: some fields are for soft attention only, some for hard.

    doubly_stochastic: lambda of Xu et al. 2015, equation 14; 0 leaves the term out. For soft
        attention only: set it to 0 for hard.
    doubly_stochastic_target: what the attention a place gets over a caption should sum to: `one`
        (the paper's), or `share`, T / L, which a caption of T words can reach.
    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7).

    For hard attention only, Xu et al. 2015, section 4.1:

    reward_weight: lambda_r of equation 12. With 1, and no entropy term, the gradient is on average
        that of the lower bound; less of it is a smaller step for the places than for the words,
        and keeps the noise of the draws down. The paper names no value, and these are ours.
    entropy_weight: lambda_e of equation 12.
    baseline_decay: how much of the baseline stays at every step; 0.9 in the paper.
    semi_sampling: probability for a caption to be given the expected value in place of draws.

    Raises `UserError` for values out of range.
    """

    doubly_stochastic: float = 1.0
    doubly_stochastic_target: str = "one"
    label_smoothing: float = 0.0
    reward_weight: float = 0.1
    entropy_weight: float = 0.002
    baseline_decay: float = 0.9
    semi_sampling: float = 0.5

    def __post_init__(self) -> None:
        for name in ("doubly_stochastic", "reward_weight", "entropy_weight"):
            if not getattr(self, name) >= 0:
                raise UserError(f"objective {name} {getattr(self, name)} is negative")
        if self.doubly_stochastic_target not in ("one", "share"):
            raise UserError(
                f"objective doubly_stochastic_target {self.doubly_stochastic_target!r} is not "
                "one of one, share"
            )
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"objective label_smoothing {self.label_smoothing} is not in [0, 1)")
        if not 0 <= self.baseline_decay < 1:
            raise UserError(f"objective baseline_decay {self.baseline_decay} is not in [0, 1)")
        if not 0 <= self.semi_sampling <= 1:
            raise UserError(f"objective semi_sampling {self.semi_sampling} is not in [0, 1]")

    def check_selection(self, selection: str) -> None:
        """Raise `UserError` naming a field that has no meaning for `soft` or `hard` attention."""
        if selection == "hard":
            if self.doubly_stochastic != 0:
                raise UserError(
                    f"objective doubly_stochastic {self.doubly_stochastic} is for soft attention; "
                    "set it to 0 for hard"
                )
            return
        for name in ("reward_weight", "entropy_weight", "baseline_decay", "semi_sampling"):
            if getattr(self, name) != getattr(ObjectiveConfig, name):
                raise UserError(
                    f"objective {name} {getattr(self, name)} is for hard attention; leave it out"
                )


def cross_entropy(
    logits: Tensor, targets: Tensor, mask: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Minus log p(y | x) of each caption, summed over its words: (B,), in nats.

    logits (B, T, V), targets (B, T), mask (B, T) boolean, False for padding, which counts for
    nothing. Computed in float32 at least. Xu et al. 2015, equation 14, first term.
    """
    flat = functional.cross_entropy(
        (logits if logits.dtype == torch.float64 else logits.float()).flatten(end_dim=1),
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
