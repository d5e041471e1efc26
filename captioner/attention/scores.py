"""Score functions: how well a query matches each key. How to score, apart from how to select.

Every score has the same two halves: `project_keys`, done once for a memory, and `forward`, done
for every query. All of them take any leading dimensions, written `...` (B, or B and N heads).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from captioner.attention.fused_additive import (
    FusedAdditiveScores,
    additive_scores,
    exponentials,
    plain_additive_scores,
)
from captioner.attention.products import Linear


class Score(nn.Module):
    """Base of all score functions."""

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, A). By default the values are their own keys."""
        return values

    def prepare(self, keys: Tensor) -> Tensor | None:
        """What else can be computed of the keys once, for `forward` to be quicker; None if nothing.

        No gradient passes through it: that of the scores is the keys'.
        """
        return None

    def forward(self, query: Tensor, keys: Tensor, prepared: Tensor | None = None) -> Tensor:
        """Queries (..., Q, H) and projected keys (..., L, A) -> scores (..., Q, L).

        prepared: what `prepare` made of these keys; of no effect but on speed.
        """
        raise NotImplementedError


class DotScore(Score):
    """q . k. Luong et al. 2015, section 3.1, `dot`. Needs H = D."""

    def forward(self, query: Tensor, keys: Tensor, prepared: Tensor | None = None) -> Tensor:
        """Queries (..., Q, D) and keys (..., L, D) -> scores (..., Q, L)."""
        return query @ keys.transpose(-2, -1)  # (..., Q, L)


class ScaledDotProductScore(DotScore):
    """q . k / sqrt(size of a key). Vaswani et al. 2017, equation 1. Needs H = A."""

    def forward(self, query: Tensor, keys: Tensor, prepared: Tensor | None = None) -> Tensor:
        """Queries (..., Q, A) and keys (..., L, A) -> scores (..., Q, L)."""
        return super().forward(query / math.sqrt(keys.shape[-1]), keys)  # (..., Q, L)


class GeneralScore(DotScore):
    """q^T W k. Luong et al. 2015, section 3.1, `general`.

    W k is computed once a memory, so a step costs no more than the plain dot product.
    """

    def __init__(self, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.key_projection = nn.Linear(memory_size, query_size, bias=False)

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, H)."""
        return self.key_projection(values)  # type: ignore[no-any-return]


class AdditiveScore(Score):
    """v^T tanh(W q + U k + b). Bahdanau et al. 2014, appendix A.1.2; the f_att of Xu et al. 2015.

    The bias b is Xu et al.'s (Bahdanau et al. leave biases out); `bias=False` takes it away.
    temperature: what scores are divided by; below 1 the weights made of them are narrower. 1 in
        the papers.

    fused: compute it as `captioner.attention.fused_additive` does, which is many times quicker on
        a CPU and equal within rounding; set it to False for the plain equation, which is what runs
        elsewhere and where the keys were not prepared.
    """

    fused: bool = True

    def __init__(
        self,
        query_size: int,
        memory_size: int,
        attention_size: int,
        bias: bool = True,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.query_projection = Linear(query_size, attention_size, bias=False)
        self.key_projection = Linear(memory_size, attention_size, bias=bias)
        self.energy = nn.Linear(attention_size, 1, bias=False)

    def energies(self) -> Tensor:
        """v, divided by the temperature: (A)."""
        energy = self.energy.weight[0]  # (A)
        return energy if self.temperature == 1.0 else energy / self.temperature

    def project_keys(self, values: Tensor) -> Tensor:
        """Values (..., L, D) -> keys (..., L, A)."""
        return self.key_projection(values)  # type: ignore[no-any-return]

    def prepare(self, keys: Tensor) -> Tensor | None:
        """Keys (B, L, A) -> their exponentials; None where the plain equation is to run.

        It is to run everywhere but on a CPU: the rest has not been timed elsewhere, and it takes
        about twice as many operations, small ones, whose number is what costs on a GPU.
        """
        if not self.fused or keys.device.type != "cpu" or keys.dim() != 3:
            return None
        return exponentials(keys)

    def forward(self, query: Tensor, keys: Tensor, prepared: Tensor | None = None) -> Tensor:
        """Queries (..., Q, H) and keys (..., L, A) -> scores (..., Q, L)."""
        projected = self.query_projection(query)  # (..., Q, A)
        energy = self.energies()
        if prepared is None:
            return plain_additive_scores(projected, keys, energy)
        if not torch.is_grad_enabled():
            return additive_scores(projected, keys, prepared, energy).to(projected.dtype)
        scores: Tensor = FusedAdditiveScores.apply(projected, keys, prepared, energy)
        return scores.to(projected.dtype)


class ConcatScore(AdditiveScore):
    """v^T tanh(W [q; k]). Luong et al. 2015, section 3.1, `concat`.

    W is kept as its two halves, W [q; k] = W_q q + W_k k, so that the half of the keys is computed
    once a memory. It differs from `AdditiveScore` in having no bias and in one shared initial
    scale for both halves.
    """

    def __init__(self, query_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__(query_size, memory_size, attention_size, bias=False)
        whole = nn.Linear(query_size + memory_size, attention_size, bias=False)
        with torch.no_grad():
            self.query_projection.weight.copy_(whole.weight[:, :query_size])
            self.key_projection.weight.copy_(whole.weight[:, query_size:])
