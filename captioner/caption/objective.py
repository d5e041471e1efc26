"""The training objective: its options, and the regularisers of the attention maps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.errors import UserError


@dataclass(frozen=True)
class SelfCriticalConfig:
    """Self-critical sequence training: see `captioner.caption.self_critical`.

    baseline: what a sample's reward is held against: `greedy`, the reward of the caption that
        greedy search finds (Rennie et al. 2017, equation 9), or `new`, the mean reward of the
        photo's other samples (Luo 2020, *A Better Variant of Self-Critical Sequence Training*).
    samples: captions drawn for each photo; 2 or more with `new`.
    cross_entropy_weight: how much of the loss that the photo's own caption gives is added.
    maximum_length: words; a sample is cut behind so many.
    reward_end: whether the end counts as a word in the reward, in samples and references. Without
        it an unfinished caption ("a dog running on a") is worth as much as a finished one.

    Raises `UserError` for values out of range.
    """

    baseline: str = "new"
    samples: int = 5
    cross_entropy_weight: float = 0.0
    maximum_length: int = 20
    reward_end: bool = True

    def __post_init__(self) -> None:
        if self.baseline not in ("greedy", "new"):
            raise UserError(f"self_critical baseline {self.baseline!r} is not one of greedy, new")
        least = 2 if self.baseline == "new" else 1
        if self.samples < least:
            raise UserError(
                f"self_critical samples {self.samples} is not at least {least}, "
                f"which the baseline {self.baseline!r} needs"
            )
        _check_weight("self_critical cross_entropy_weight", self.cross_entropy_weight)
        if self.maximum_length < 1:
            raise UserError(f"self_critical maximum_length {self.maximum_length} is not at least 1")


@dataclass(frozen=True)
class ObjectiveConfig:
    """The training objective: some fields are for soft attention only, some for hard.

    doubly_stochastic: lambda of Xu et al. 2015, equation 14; 0 leaves the term out. For soft
        attention only: set it to 0 for hard.
    doubly_stochastic_target: what the attention a place gets over a caption should sum to: `one`
        (the paper's), or `share`, T / L, which a caption of T words can reach.
    label_smoothing: probability spread over the whole vocabulary (Szegedy et al. 2016, section 7).
    map_divergence: weight of the divergence of a caption's maps, which is wanted: more of it makes
        maps move from word to word; see `map_divergence`. Not in the paper. For soft attention
        only.
    scheduled_sampling: probability, reached at the end of training and rising to it from 0 on a
        straight line, that the decoder is fed a word of its own in place of the caption's (Bengio
        et al. 2015, *Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks*).
    self_critical: train on the reward of the decoder's own captions; for soft attention only, and
        best from a model that cross-entropy has trained. The fields above then say what is added
        by its `cross_entropy_weight`; where that is 0 they have no effect, and `label_smoothing`
        and `scheduled_sampling` must be 0.

    For hard attention only, Xu et al. 2015, section 4.1:

    reward_weight: lambda_r of equation 12. With 1, and no entropy term, the gradient is on average
        that of the lower bound; less of it is a smaller step for the places than for the words,
        and keeps the noise of the draws down. The paper names no value; this is that of the
        authors' code, which divides the gradient by 10.
    entropy_weight: lambda_e of equation 12; the value is that of the authors' code.
    baseline_decay: how much of the baseline stays at every step; 0.9 in the paper.
    draws: how often the places of a caption are drawn. With one, the paper's, a draw is held
        against the moving average, and how hard the caption is drowns what the places did to it.
        With two or more it is held against the mean of the caption's other draws, which leaves the
        gradient's mean as it is and takes nearly all of that noise away (Kool et al. 2019, *Buy 4
        REINFORCE Samples, Get a Baseline for Free!*); time and memory grow with them.
    semi_sampling: probability for a caption to be given the expected value in place of draws.

    Raises `UserError` for values out of range, and for a field that another leaves no effect.
    """

    doubly_stochastic: float = 1.0
    doubly_stochastic_target: str = "one"
    label_smoothing: float = 0.0
    map_divergence: float = 0.0
    reward_weight: float = 0.1
    entropy_weight: float = 0.002
    baseline_decay: float = 0.9
    semi_sampling: float = 0.5
    draws: int = 1
    scheduled_sampling: float = 0.0
    self_critical: SelfCriticalConfig | None = None

    def __post_init__(self) -> None:
        for name in ("doubly_stochastic", "map_divergence", "reward_weight", "entropy_weight"):
            _check_weight(f"objective {name}", getattr(self, name))
        if self.doubly_stochastic_target not in ("one", "share"):
            raise UserError(
                f"objective doubly_stochastic_target {self.doubly_stochastic_target!r} is not "
                "one of one, share"
            )
        if not 0 <= self.label_smoothing < 1:
            raise UserError(f"objective label_smoothing {self.label_smoothing} is not in [0, 1)")
        if not 0 <= self.baseline_decay < 1:
            raise UserError(f"objective baseline_decay {self.baseline_decay} is not in [0, 1)")
        if self.draws < 1:
            raise UserError(f"objective draws {self.draws} is not at least 1")
        for name in ("semi_sampling", "scheduled_sampling"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"objective {name} {getattr(self, name)} is not in [0, 1]")
        if self.self_critical is not None and self.self_critical.cross_entropy_weight == 0:
            for name in ("label_smoothing", "scheduled_sampling"):
                if getattr(self, name) > 0:
                    raise UserError(
                        f"objective {name} {getattr(self, name)} has no effect: self_critical "
                        "cross_entropy_weight is 0"
                    )

    def check_selection(self, selection: str) -> None:
        """Raise `UserError` naming a field that has no meaning for `soft` or `hard` attention."""
        if selection == "hard":
            if self.doubly_stochastic != 0:
                raise UserError(
                    f"objective doubly_stochastic {self.doubly_stochastic} is for soft attention; "
                    "set it to 0 for hard"
                )
            if self.map_divergence != 0:
                raise UserError(
                    f"objective map_divergence {self.map_divergence} is for soft attention; "
                    "leave it out"
                )
            if self.doubly_stochastic_target != "one":
                raise UserError(
                    f"objective doubly_stochastic_target {self.doubly_stochastic_target!r} is for "
                    "soft attention; leave it out"
                )
            if self.self_critical is not None:
                raise UserError(
                    "objective self_critical is for soft attention: a caption's probability under "
                    "hard attention is a sum over all places it may have looked at"
                )
            return
        for name in ("reward_weight", "entropy_weight", "baseline_decay", "semi_sampling", "draws"):
            if getattr(self, name) != getattr(ObjectiveConfig, name):
                raise UserError(
                    f"objective {name} {getattr(self, name)} is for hard attention; leave it out"
                )


def _check_weight(name: str, weight: float) -> None:
    """Raise `UserError` unless it is a finite number of at least 0."""
    if not math.isfinite(weight):
        raise UserError(f"{name} {weight} is not a finite number")
    if weight < 0:
        raise UserError(f"{name} {weight} is negative")


def doubly_stochastic_penalty(weights: Tensor, mask: Tensor, target: str = "one") -> Tensor:
    """Unevenness of the attention over a photo: (B,), sum over positions of (1 - sum_t alpha)^2.

    weights (B, T, L), mask (B, T) boolean, False for padding, whose attention is left out.
    target: `one`, as written, or `share`, T / L in place of 1, with each caption's T.
    Xu et al. 2015, section 4.2.1 and equation 14, second term: summed over the L positions,
    divided neither by L nor by the batch. Computed in float32 at least.
    """
    weights = weights if weights.dtype == torch.float64 else weights.float()
    mass = (weights * mask.unsqueeze(-1)).sum(dim=1)  # (B, L)
    if target == "share":
        words = mask.sum(dim=1, keepdim=True).to(weights.dtype)  # (B, 1)
        target_mass = words / weights.shape[-1]  # (B, 1)
    else:
        target_mass = torch.ones_like(mass[:, :1])  # (B, 1)
    return (target_mass - mass).square().sum(dim=1)


def map_divergence(weights: Tensor, mask: Tensor) -> Tensor:
    """Divergence of a caption's maps from their mean, in nats, summed over its words: (B,).

    T times the Jensen-Shannon divergence of the maps of T words, equally weighted: the entropy of
    their mean less the mean of their entropies (Lin 1991, *Divergence Measures Based on the Shannon
    Entropy*, equation 5.1), the mutual information of word and position. 0 for equal maps, however
    wide. weights (B, T, L), mask (B, T) boolean, False for padding, whose attention is left out.
    Computed in float32 at least.
    """
    weights = weights if weights.dtype == torch.float64 else weights.float()
    words = mask.sum(dim=1).to(weights.dtype)  # (B,)
    mean = (weights * mask.unsqueeze(-1)).sum(dim=1) / words.clamp(min=1).unsqueeze(-1)  # (B, L)
    return words * _entropy(mean) - (_entropy(weights) * mask).sum(dim=1)


def _entropy(weights: Tensor) -> Tensor:
    """Entropy of distributions over positions (..., L), in nats: (...)."""
    floor = torch.finfo(weights.dtype).tiny  # The gradient at 0 is infinite.
    entropy: Tensor = torch.special.entr(weights.clamp(min=floor)).sum(dim=-1)  # (...)
    return entropy
