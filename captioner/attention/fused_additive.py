"""Additive attention's score, and its gradient, a cache's worth at a time.

    s_ql = v . tanh(q_q + k_l)

Written plainly this makes a temporary (B, Q, L, A) that no cache holds, and that is kept for the
gradient at every word. Here it is made for a few sources at a time, used while it is near, and
made anew for the gradient. And since

    tanh(q + k) = 1 - 2 r,    r = 1 / (1 + exp(2 q) exp(2 k)),    tanh' = 4 r (1 - r)

the exponentials of the keys are taken once a memory and those of the queries once a query: what is
left for each of the Q x L x A is a product, a sum and a division, many times quicker than tanh, and
as exact: r is never further from the truth than a rounding of q + k would put it. Given ds,

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

_LARGEST_KEY = 30.0
"""A query that `_exponentials` must clamp, beyond 43 in float32, is so far from keys of up to this
size that tanh of their sum is 1 or -1, as it is with the clamped query."""


def plain_additive_scores(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    """The scores (B, Q, L) as the equation has them: the reference of all the rest.

    Any leading dimensions in place of B.
    """
    match = torch.tanh(query.unsqueeze(-2) + keys.unsqueeze(-3))  # (..., Q, L, A)
    return match @ energy  # (..., Q, L)


@torch.no_grad()
def key_exponentials(keys: Tensor) -> Tensor | None:
    """exp(2 k) of the keys (B, L, A), in float32 at least.

    None for keys too large for it (or not numbers), of which only the plain scores are exact.
    """
    keys = _wide(keys)
    if keys.numel() > 0:
        least, most = keys.aminmax()
        if not bool((least >= -_LARGEST_KEY) & (most <= _LARGEST_KEY)):
            return None
    return (2 * keys).exp_()


@in_types_given
def additive_scores(query: Tensor, exponentials: Tensor, energy: Tensor) -> Tensor:
    """The scores (B, Q, L), in float32 at least, without a gradient."""
    energy = energy.to(exponentials.dtype)
    scores = exponentials.new_empty(*query.shape[:2], exponentials.shape[1])  # (B, Q, L)
    for part, falling in _parts(_exponentials(query), exponentials):
        scores[part] = torch.mv(falling.flatten(end_dim=-2), energy).view(falling.shape[:-1])
    return scores.mul_(-2).add_(energy.sum())


@in_types_given
def query_gradient(
    gradient: Tensor, query: Tensor, exponentials: Tensor, energy: Tensor
) -> tuple[Tensor, Tensor]:
    """The scores' gradient (B, Q, L) -> that of the queries, (B, Q, A), and of v, (A)."""
    gradient, energy = gradient.to(exponentials.dtype), energy.to(exponentials.dtype)
    found = torch.empty_like(query, dtype=exponentials.dtype)  # (B, Q, A)
    of_energy = torch.zeros_like(energy)  # (A)
    for part, falling in _parts(_exponentials(query), exponentials):
        own = gradient[part].unsqueeze(-2)  # (b, Q, 1, L)
        of_energy += (own @ falling).sum(dim=(0, 1, 2))
        slope = falling.addcmul_(falling, falling, value=-1)  # (b, Q, L, A), r (1 - r)
        found[part] = (own @ slope).squeeze(-2)  # (b, Q, A)
    return found.mul_(4 * energy), gradient.sum() - 2 * of_energy


@in_types_given
def key_gradient(gradient: Tensor, query: Tensor, exponentials: Tensor, energy: Tensor) -> Tensor:
    """The scores' gradient (B, Q, L) -> that of the keys, (B, L, A), summed over the queries.

    For one source after the other, and its queries one after the other, however many there are.
    """
    gradient, query = gradient.to(exponentials.dtype), _exponentials(query)
    found = torch.zeros_like(exponentials)  # (B, L, A)
    falling = exponentials.new_empty(exponentials.shape[1:])  # (L, A)
    one = exponentials.new_ones(())
    for source, total in enumerate(found):
        for number, row in enumerate(query[source]):
            torch.addcmul(one, row, exponentials[source], out=falling).reciprocal_()
            falling.addcmul_(falling, falling, value=-1)  # (L, A), r (1 - r)
            total.addcmul_(falling, gradient[source, number].unsqueeze(-1))
    return found.mul_(4 * energy.to(found.dtype))


class FusedAdditiveScores(torch.autograd.Function):
    """`additive_scores` with its gradient: `FusedAdditiveScores.apply(query, keys, exps, v)`.

    Takes the keys beside their exponentials only because the gradient is theirs.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, exponentials: Tensor, energy: Tensor
    ) -> Tensor:
        """Queries (B, Q, A), keys (B, L, A), v (A) -> scores (B, Q, L)."""
        ctx.save_for_backward(query, exponentials, energy)
        ctx.key_type = keys.dtype
        return additive_scores(query, exponentials, energy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The scores' gradient (B, Q, L) -> those of the queries, the keys and v."""
        query, exponentials, energy = ctx.saved_tensors
        of_query, of_energy = query_gradient(gradient, query, exponentials, energy)
        of_keys = None
        if ctx.needs_input_grad[1]:
            of_keys = key_gradient(gradient, query, exponentials, energy).to(ctx.key_type)
        return of_query.to(query.dtype), of_keys, None, of_energy.to(energy.dtype)


def _parts(query: Tensor, keys: Tensor) -> Iterator[tuple[tuple[slice, slice], Tensor]]:
    """Exponentials (B, Q, A) and (B, L, A) -> a few sources and queries at a time, with their r.

    r is (b, q, L, A), in memory that is used again for the next.
    """
    batch_size, queries, size = query.shape
    length = keys.shape[1]
    of_queries = min(queries, max(1, _ELEMENTS // max(1, length * size)))
    of_sources = min(batch_size, max(1, _ELEMENTS // max(1, of_queries * length * size)))
    memory = keys.new_empty(of_sources, of_queries, length, size)
    one = keys.new_ones(())
    for source in range(0, batch_size, max(1, of_sources)):
        for first in range(0, queries, max(1, of_queries)):
            part = slice(source, source + of_sources), slice(first, first + of_queries)
            own = query[part].unsqueeze(-2)  # (b, q, 1, A)
            falling = memory[: own.shape[0], : own.shape[1]]  # (b, q, L, A)
            torch.addcmul(one, own, keys[part[0]].unsqueeze(-3), out=falling)
            yield part, falling.reciprocal_()


def _exponentials(query: Tensor) -> Tensor:
    """exp(2 q) of queries, as large as it may be without ceasing to be a number."""
    query = _wide(query)
    limit = 0.49 * math.log(torch.finfo(query.dtype).max)
    return (2 * query.clamp(-limit, limit)).exp_()


def _wide(tensor: Tensor) -> Tensor:
    """In float32 at least."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
