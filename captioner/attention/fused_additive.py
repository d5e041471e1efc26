"""Additive attention's score, and its gradient, a cache's worth at a time.

    s_ql = v . tanh(q_q + k_l)

Written plainly this makes a temporary (B, Q, L, A) that no cache holds, and that is kept for the
gradient at every word. Here it is made for a few sources at a time, used while it is near, and
made anew for the gradient. And since

    tanh(q + k) = 1 - 2 r,    r = 1 / (1 + exp(2 q) exp(2 k)),    tanh' = 4 r (1 - r)

the exponentials of the keys are taken once a memory and those of the queries once a query: what is
left for each of the Q x L x A is a product, a sum and a division, many times quicker than tanh, and
as exact: r is never further from the truth than a rounding of q + k would put it. (Exponentials of
what is beyond 43 would not be float32 numbers; it is taken for 43, of which tanh knows no
difference unless both q and k are so large and of opposite signs. Where they might be, r is
computed from q + k.) Given ds,

    s_ql  = sum_a v_a - 2 sum_a v_a r_qla
    dv_a  = sum_ql ds_ql (1 - 2 r_qla)
    dq_qa = 4 v_a sum_l ds_ql r_qla (1 - r_qla)
    dk_la = 4 v_a sum_q ds_ql r_qla (1 - r_qla)

All is computed in float32, or float64 for float64, inside an autocast region too. Shapes: queries
(B, Q, A), already projected, keys (B, L, A) and their exponentials, v (A), scores (B, Q, L).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from captioner.attention.products import in_types_given

_ELEMENTS = 1 << 18
"""Of a temporary that stays in the cache: 1 MiB in float32."""

_LARGE = 30.0
"""If neither queries nor keys, or one of them only, are beyond this, clamping changes nothing: what
is clamped, beyond 43 in float32, is so far from the other that tanh of their sum is 1 or -1."""


def plain_additive_scores(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """The scores (B, Q, L) as the equation has them: the reference of all the rest.

    Any leading dimensions in place of B.
    """
    match = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))  # (..., Q, L, A)
    return match @ energy  # (..., Q, L)


@torch.no_grad()
def exponentials(projected: Tensor) -> Tensor:
    """exp(2 q) of queries or exp(2 k) of keys (B, L, A), in float32 at least.

    As large, and as small, as they may be without ceasing to be numbers.
    """
    wide = _wide(projected)
    limit = 0.49 * math.log(torch.finfo(wide.dtype).max)
    return (2 * wide.clamp(-limit, limit)).exp_()


@in_types_given
def additive_scores(query: Tensor, keys: Tensor, prepared: Tensor, energy: Tensor) -> Tensor:
    """The scores (B, Q, L), in float32 at least, without a gradient.

    prepared: the keys' `exponentials`, here and below.
    """
    energy = energy.to(prepared.dtype)
    scores = prepared.new_empty(*query.shape[:2], prepared.shape[1])  # (B, Q, L)
    for part, falling in _parts(query, keys, prepared):
        scores[part] = torch.mv(falling.flatten(end_dim=-2), energy).view(falling.shape[:-1])
    return scores.mul_(-2).add_(energy.sum())


@in_types_given
def query_gradient(
    gradient: Tensor, query: Tensor, keys: Tensor, prepared: Tensor, energy: Tensor
) -> tuple[Tensor, Tensor]:
    """The scores' gradient (B, Q, L) -> that of the queries, (B, Q, A), and of v, (A)."""
    gradient, energy = gradient.to(prepared.dtype), energy.to(prepared.dtype)
    found = torch.empty_like(query, dtype=prepared.dtype)  # (B, Q, A)
    of_energy = torch.zeros_like(energy)  # (A)
    for part, falling in _parts(query, keys, prepared):
        own = gradient[part].unsqueeze(-2)  # (b, Q, 1, L)
        of_energy += (own @ falling).sum(dim=(0, 1, 2))
        slope = falling.addcmul_(falling, falling, value=-1)  # (b, Q, L, A), r (1 - r)
        found[part] = (own @ slope).squeeze(-2)  # (b, Q, A)
    return found.mul_(4 * energy), gradient.sum() - 2 * of_energy


@in_types_given
def key_gradient(
    gradient: Tensor, query: Tensor, keys: Tensor, prepared: Tensor, energy: Tensor
) -> Tensor:
    """The scores' gradient (B, Q, L) -> that of the keys, (B, L, A), summed over the queries.

    For one source after the other, and its queries one after the other, however many there are.
    """
    gradient, falling_of = gradient.to(prepared.dtype), _Falling(query, keys, prepared)
    found = torch.zeros_like(prepared)  # (B, L, A)
    falling = prepared.new_empty(prepared.shape[1:])  # (L, A)
    for source, total in enumerate(found):
        for number, own in enumerate(gradient[source]):
            falling_of((source, number), source, falling)
            falling.addcmul_(falling, falling, value=-1)  # (L, A), r (1 - r)
            total.addcmul_(falling, own.unsqueeze(-1))
    return found.mul_(4 * energy.to(found.dtype))


class FusedAdditiveScores(torch.autograd.Function):
    """`additive_scores` and its gradient: `FusedAdditiveScores.apply(query, keys, prepared, v)`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, prepared: Tensor, energy: Tensor) -> Tensor:
        """Queries (B, Q, A), keys (B, L, A), v (A) -> scores (B, Q, L)."""
        ctx.save_for_backward(query, keys, prepared, energy)
        return additive_scores(query, keys, prepared, energy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The scores' gradient (B, Q, L) -> those of the queries, the keys and v."""
        query, keys, prepared, energy = ctx.saved_tensors
        of_query, of_energy = query_gradient(gradient, query, keys, prepared, energy)
        of_keys = None
        if ctx.needs_input_grad[1]:
            of_keys = key_gradient(gradient, query, keys, prepared, energy).to(keys.dtype)
        return of_query.to(query.dtype), of_keys, None, of_energy.to(energy.dtype)


class _Falling:
    """What gives r for some queries and sources: from exponentials, or from q + k where it must."""

    def __init__(self, query: Tensor, keys: Tensor, prepared: Tensor) -> None:
        """Queries (B, Q, A), keys (B, L, A) and their exponentials."""
        self.exact = not _both_large(query, prepared)
        self.query = (exponentials(query) if self.exact else _wide(query)).unsqueeze(-2)
        self.keys = prepared if self.exact else _wide(keys)
        self.one = prepared.new_ones(())

    def __call__(self, queries: Any, sources: Any, out: Tensor) -> Tensor:
        """Places of queries, and of their sources as (..., L, A) -> r (..., L, A), in `out`."""
        query, keys = self.query[queries], self.keys[sources]
        if self.exact:
            return torch.addcmul(self.one, query, keys, out=out).reciprocal_()
        return torch.add(query, keys, out=out).mul_(-2).sigmoid_()


def _both_large(query: Tensor, prepared: Tensor) -> bool:
    """Whether queries and keys may both be beyond `_LARGE`, or something is no number."""
    if query.numel() == 0 or prepared.numel() == 0 or bool(query.abs().amax() <= _LARGE):
        return False
    least, most = prepared.aminmax()
    return not bool((least >= math.exp(-2 * _LARGE)) & (most <= math.exp(2 * _LARGE)))


def _parts(
    query: Tensor, keys: Tensor, prepared: Tensor
) -> Iterator[tuple[tuple[slice, slice], Tensor]]:
    """Queries (B, Q, A) and keys (B, L, A) -> a few sources and queries at a time, with their r.

    r is (b, q, L, A), in memory that is used again for the next.
    """
    batch_size, queries, size = query.shape
    length = keys.shape[1]
    of_queries = min(queries, max(1, _ELEMENTS // max(1, length * size)))
    of_sources = min(batch_size, max(1, _ELEMENTS // max(1, of_queries * length * size)))
    memory = prepared.new_empty(of_sources, of_queries, length, size)
    falling_of = _Falling(query, keys, prepared)
    for source in range(0, batch_size, max(1, of_sources)):
        sources = slice(source, min(batch_size, source + of_sources))
        for first in range(0, queries, max(1, of_queries)):
            part = sources, slice(first, min(queries, first + of_queries))
            falling = memory[: sources.stop - source, : part[1].stop - first]  # (b, q, L, A)
            yield part, falling_of(part, (sources, None), falling)


def _wide(tensor: Tensor) -> Tensor:
    """In float32 at least."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
