"""The training objective: its options, and the regularisers of the attention maps."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import Self

from captioner.devices import at_least_float32
from captioner.errors import UserError
from captioner.schema import LENGTH, Config

WEIGHT = 1e6
"""The largest weight of a term of the loss."""


_SOFT_FIELDS: dict[str, Any] = {
    "doubly_stochastic": 0.0,
    "doubly_stochastic_target": "one",
    "grounding": 0.0,
}
"""Fields of soft attention, with the values that hard attention needs."""

_HARD_FIELDS = ("reward_weight", "entropy_weight", "baseline_decay", "semi_sampling", "draws")


class SelfCriticalConfig(Config):
    """Self-critical sequence training: see `captioner.caption.self_critical`."""

    baseline: Literal["greedy", "new"] = Field(
        "new",
        description="what a sample's reward is compared with: greedy, that of greedy search "
        "(Rennie et al. 2017, equation 9), or new, the mean of the other samples (Luo 2020)",
    )
    samples: int = Field(
        5, ge=1, le=10_000, description="captions drawn for each photo; 2 or more with new"
    )
    cross_entropy_weight: float = Field(
        0.0, ge=0, le=WEIGHT, description="weight of the cross-entropy of the photo's own caption"
    )
    word_precision_weight: float = Field(
        0.0,
        ge=0,
        le=WEIGHT,
        description="weight, beside CIDEr-D, of the share of content words that a reference has",
    )
    maximum_length: int = Field(
        20, ge=1, le=LENGTH, description="words of a sample, which is cut off there"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.baseline == "new" and self.samples < 2:
            raise ValueError(
                f"samples {self.samples} is not at least 2, which the baseline 'new' needs"
            )
        return self


class ObjectiveConfig(Config):
    """The training objective: Xu et al. 2015, section 4.

    With one draw a caption, the paper's, its reward is compared with the moving average of others;
    with two or more, with the mean of its other draws, which removes nearly all of the noise (Kool
    et al. 2019).
    """

    doubly_stochastic: float = Field(
        1.0,
        ge=0,
        le=WEIGHT,
        description="lambda of equation 14; 0 leaves the term out, as hard attention needs",
    )
    doubly_stochastic_target: Literal["one", "share"] = Field(
        "one",
        description="sum of a place's attention over a caption: one (the paper) or share, T / L, "
        "which T words can reach",
    )
    label_smoothing: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability spread over the whole vocabulary (Szegedy et al. 2016, section 7)",
    )
    grounding: float = Field(
        0.0,
        ge=0,
        le=WEIGHT,
        description="weight of the attention that misses what a word names, by data.instances "
        "(Liu et al. 2017); soft attention only, not in the paper",
    )
    reward_weight: float = Field(
        0.1,
        ge=0,
        le=WEIGHT,
        description="lambda_r of the learning rule after equation 12, as in the authors' code; "
        "hard attention only",
    )
    entropy_weight: float = Field(
        0.002,
        ge=0,
        le=WEIGHT,
        description="lambda_e of the learning rule after equation 12, as in the authors' code; "
        "hard attention only",
    )
    baseline_decay: float = Field(
        0.9, ge=0, lt=1, description="share of the baseline kept at an update; hard attention only"
    )
    semi_sampling: float = Field(
        0.5,
        ge=0,
        le=1,
        description="probability of the expected value in place of draws; hard attention only",
    )
    draws: int = Field(
        1, ge=1, le=10_000, description="draws of a caption's places; hard attention only"
    )
    scheduled_sampling: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability, reached at the end of training, that the decoder is fed its own "
        "word (Bengio et al. 2015)",
    )
    self_critical: SelfCriticalConfig | None = Field(
        None, description="train on the reward of the decoder's own captions; soft attention only"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.self_critical is not None and self.self_critical.cross_entropy_weight == 0:
            for name in ("label_smoothing", "scheduled_sampling", "grounding"):
                if getattr(self, name) > 0:
                    raise ValueError(
                        f"{name} {getattr(self, name)} has no effect: "
                        "self_critical.cross_entropy_weight is 0"
                    )
        return self

    def check_selection(self, selection: str) -> None:
        """Raise `UserError` naming a field that has no meaning for `soft` or `hard` attention."""
        fields = type(self).model_fields
        other, values = "hard", {name: fields[name].default for name in _HARD_FIELDS}
        if selection == "hard":
            other, values = "soft", _SOFT_FIELDS
            if self.self_critical is not None:
                raise UserError(
                    "objective.self_critical is for soft attention: a caption's probability under "
                    "hard attention is a sum over all places it may have looked at"
                )
        for name, value in values.items():
            if getattr(self, name) != value:
                raise UserError(
                    f"objective.{name} {getattr(self, name)!r} is for {other} attention; set it to "
                    f"{value!r} for {selection}"
                )


def doubly_stochastic_penalty(weights: Tensor, mask: Tensor, target: str = "one") -> Tensor:
    """Unevenness of the attention over a photo: (B,), sum over positions of (1 - sum_t alpha)^2.

    weights (B, T, L), mask (B, T) boolean, False for padding, whose attention is left out.
    target: `one`, as written, or `share`, T / L in place of 1, with each caption's T.
    Xu et al. 2015, section 4.2.1 and equation 14, second term: summed over the L positions,
    divided neither by L nor by the batch. Computed in float32 at least.
    """
    weights = at_least_float32(weights)
    mass = (weights * mask.unsqueeze(-1)).sum(dim=1)  # (B, L)
    target_mass: Tensor | float = 1.0
    if target == "share":
        words = mask.sum(dim=1, keepdim=True).to(weights.dtype)  # (B, 1)
        target_mass = words / weights.shape[-1]  # (B, 1)
    return (target_mass - mass).square().sum(dim=1)


def grounding_penalty(weights: Tensor, places: Tensor) -> Tensor:
    """Minus the logarithm of the attention inside what each word names, summed over words: (B,).

    weights (B, T, L). places (B, T, L): the share of each place inside; 0 everywhere for a word
    that names nothing, which is left out. After Liu, Mao, Sha and Yuille 2017, *Attention
    Correctness in Neural Image Captioning*, section 3.3, but asking only that the attention lies
    inside, not that it is even there. Computed in float32 at least.
    """
    weights = at_least_float32(weights)
    named = places.amax(dim=-1) > 0  # (B, T)
    inside = (weights * places).sum(dim=-1)  # (B, T)
    floor = torch.finfo(weights.dtype).tiny
    return -(inside.where(named, 1.0).clamp(min=floor).log()).sum(dim=-1)
