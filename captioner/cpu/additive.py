"""Additive attention scores and their gradient, computed in blocks that fit a CPU's cache.

    s_ql = v . tanh(q_q + k_l)

The plain equation makes a temporary (B, Q, L, A), too large for a cache, which autograd keeps for
every word. Here it is computed block by block, and again for the gradient. With

    tanh(q + k) = 1 - 2 r,    r = 1 / (1 + exp(2 q) exp(2 k)),    tanh' = 4 r (1 - r)

the exponentials are taken once a key and once a query. Each of the Q x L x A terms then costs a
product, a sum and a division, far less than tanh, and is as accurate. Exponents are clamped at 43,
beyond which they overflow float32; that changes tanh only where q and k are both large and of
opposite signs. There r is computed as sigmoid(-2 (q + k)). Given ds,

    s_ql  = sum_a v_a - 2 sum_a v_a r_qla
    dv_a  = sum_ql ds_ql (1 - 2 r_qla)
    dq_qa = 4 v_a sum_l ds_ql r_qla (1 - r_qla)
    dk_la = 4 v_a sum_q ds_ql r_qla (1 - r_qla)

Everything is float32, or float64 for float64, also in an autocast region. Shapes: projected
queries (B, Q, A), keys (B, L, A) and their exponentials, v (A), scores (B, Q, L).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from captioner.devices import at_least_float32

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_BLOCK_ELEMENTS = 1 << 18
"""Elements of a temporary that stays in the cache: 1 MiB in float32."""

_LARGE = 30.0
"""Clamping is harmless while queries, or keys, stay within this: where one of the two is beyond 43,
their sum is so large that tanh is 1 or -1."""


def autocast_disabled(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function of CPU tensors to compute in their own types inside autocast."""

    @wraps(function)
    def computed(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with torch.autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return computed


@torch.no_grad()
def exponentials(projected: Tensor) -> Tensor:
    """Queries or keys x (B, L, A) -> exp(2 x), finite and above 0, in float32 at least."""
    wide = at_least_float32(projected)
    limit = 0.49 * math.log(torch.finfo(wide.dtype).max)
    return (2 * wide.clamp(-limit, limit)).exp_()


@autocast_disabled
def additive_scores(query: Tensor, keys: Tensor, key_exponentials: Tensor, v: Tensor) -> Tensor:
    """The scores (B, Q, L), in float32 at least, without a gradient.

    key_exponentials: `exponentials` of the keys, here and below.
    """
    v = v.to(key_exponentials.dtype)
    scores = key_exponentials.new_empty(*query.shape[:2], keys.shape[1])  # (B, Q, L)
    for block, r in _blocks(query, keys, key_exponentials):
        scores[block] = torch.mv(r.flatten(end_dim=-2), v).view(r.shape[:-1])
    return scores.mul_(-2).add_(v.sum())


@autocast_disabled
def query_gradient(
    grad_scores: Tensor, query: Tensor, keys: Tensor, key_exponentials: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of the scores (B, Q, L) -> of the queries, (B, Q, A), and of v, (A)."""
    grad_scores, v = grad_scores.to(key_exponentials.dtype), v.to(key_exponentials.dtype)
    grad_query = torch.empty_like(query, dtype=v.dtype)  # (B, Q, A)
    weighted_r = torch.zeros_like(v)  # (A)
    for block, r in _blocks(query, keys, key_exponentials):
        grad_block = grad_scores[block].unsqueeze(-2)  # (b, q, 1, L)
        weighted_r += (grad_block @ r).sum(dim=(0, 1, 2))
        slope = r.addcmul_(r, r, value=-1)  # (b, q, L, A), r (1 - r)
        grad_query[block] = (grad_block @ slope).squeeze(-2)  # (b, q, A)
    return grad_query.mul_(4 * v), grad_scores.sum() - 2 * weighted_r


@autocast_disabled
def key_gradient(
    grad_scores: Tensor, query: Tensor, keys: Tensor, key_exponentials: Tensor, v: Tensor
) -> Tensor:
    """The gradient of the scores (B, Q, L) -> of the keys, (B, L, A), summed over the queries.

    Goes through one query of one source at a time: the temporary is (L, A) however many there are.
    """
    grad_scores = grad_scores.to(key_exponentials.dtype)
    r_of = _Sigmoid(query, keys, key_exponentials)
    grad_keys = torch.zeros_like(key_exponentials)  # (B, L, A)
    r = key_exponentials.new_empty(keys.shape[1:])  # (L, A)
    for source, total in enumerate(grad_keys):
        for number, grad_row in enumerate(grad_scores[source]):
            r_of((source, number), source, r)
            r.addcmul_(r, r, value=-1)  # (L, A), r (1 - r)
            total.addcmul_(r, grad_row.unsqueeze(-1))
    return grad_keys.mul_(4 * v.to(grad_keys.dtype))


class _Sigmoid:
    """Computes r = sigmoid(-2 (q + k)) of some queries and sources.

    From the exponentials where clamping them is harmless, from q + k otherwise.
    """

    def __init__(self, query: Tensor, keys: Tensor, key_exponentials: Tensor) -> None:
        """Queries (B, Q, A), keys (B, L, A) and their exponentials."""
        self.from_exponentials = not _both_large(query, key_exponentials)
        first = exponentials(query) if self.from_exponentials else at_least_float32(query)
        self.query = first.unsqueeze(-2)  # (B, Q, 1, A)
        self.keys = key_exponentials if self.from_exponentials else at_least_float32(keys)
        self.one = key_exponentials.new_ones(())

    def __call__(self, queries: Any, sources: Any, out: Tensor) -> Tensor:
        """Indices of queries, and of their sources as (..., L, A) -> r (..., L, A), in `out`."""
        query, keys = self.query[queries], self.keys[sources]
        if self.from_exponentials:
            return torch.addcmul(self.one, query, keys, out=out).reciprocal_()
        return torch.add(query, keys, out=out).mul_(-2).sigmoid_()


def _both_large(query: Tensor, key_exponentials: Tensor) -> bool:
    """Whether queries and keys may both be beyond `_LARGE`, or one of them is NaN."""
    if bool(query.abs().amax() <= _LARGE):
        return False
    least, most = key_exponentials.aminmax()
    return not bool((least >= math.exp(-2 * _LARGE)) & (most <= math.exp(2 * _LARGE)))


def _blocks(
    query: Tensor, keys: Tensor, key_exponentials: Tensor
) -> Iterator[tuple[tuple[slice, slice], Tensor]]:
    """Queries (B, Q, A) and keys (B, L, A) -> slices of sources and queries, with their r.

    r is (b, q, L, A), in memory that the next block overwrites.
    """
    batch_size, queries, size = query.shape
    length = keys.shape[1]
    most_queries = min(queries, max(1, _BLOCK_ELEMENTS // (length * size)))
    most_sources = min(batch_size, max(1, _BLOCK_ELEMENTS // (most_queries * length * size)))
    buffer = key_exponentials.new_empty(most_sources, most_queries, length, size)
    r_of = _Sigmoid(query, keys, key_exponentials)
    for source in range(0, batch_size, most_sources):
        sources = slice(source, min(batch_size, source + most_sources))
        for first in range(0, queries, most_queries):
            block = sources, slice(first, min(queries, first + most_queries))
            r = buffer[: sources.stop - source, : block[1].stop - first]  # (b, q, L, A)
            yield block, r_of(block, (sources, None), r)
