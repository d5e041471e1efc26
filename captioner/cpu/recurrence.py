"""Additive attention and the recurrence over known words, with gradients by hand.

Scores, attention weights, gates and cells are float32 at least; products are computed in the type
of the given weights. An autocast region changes nothing.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from captioner.devices import at_least_float32

_BLOCK_ELEMENTS = 1 << 20
"""Elements of a temporary that stays in the last cache: 4 MiB in float32.

Blocks of 1 MiB, which fit in a core's own cache, take 1.6 times as long (32 photos, two cores)."""

_SAFE_MAGNITUDE = 30.0
"""If no query, or no key, is beyond this, clamping the other at 43 changes nothing: |q + k| is then
above 13, where tanh is 1 or -1 in float32."""


@contextmanager
def autocast_disabled() -> Iterator[None]:
    """Compute with CPU tensors in their own types inside autocast; also a decorator."""
    with torch.autocast("cpu", enabled=False):
        yield


# Additive scores s_ql = v . tanh(q_q + k_l). The plain equation makes a temporary (B, Q, L, A), too
# large for a cache, which autograd keeps for every word. Here it is computed block by block, and
# again for the gradient. With
#
#     tanh(q + k) = 1 - 2 r,    r = 1 / (1 + exp(2 q) exp(2 k)),    tanh' = 4 r (1 - r)
#
# the exponentials are taken once a key and once a query. Each of the Q x L x A terms then costs a
# product, a sum and a division, far less than tanh, and is as accurate. Exponents are clamped at
# 43, beyond which they overflow float32; that changes tanh only where q and k are both large and of
# opposite signs. There r is computed as sigmoid(-2 (q + k)). Given ds,
#
#     s_ql  = sum_a v_a - 2 sum_a v_a r_qla
#     dv_a  = sum_ql ds_ql (1 - 2 r_qla)
#     dq_qa = 4 v_a sum_l ds_ql r_qla (1 - r_qla)
#     dk_la = 4 v_a sum_q ds_ql r_qla (1 - r_qla)
#
# Shapes: queries (B, Q, A), keys (B, L, A) and their exponentials, v (A), scores (B, Q, L).


@torch.no_grad()
def exponentials(projected: Tensor) -> Tensor:
    """Queries or keys x (B, L, A) -> exp(2 x), finite and above 0, in float32 at least."""
    wide = at_least_float32(projected)
    limit = 0.49 * math.log(torch.finfo(wide.dtype).max)
    return wide.clamp(-limit, limit).mul_(2).exp_()


@autocast_disabled()
def additive_scores(query: Tensor, keys: Tensor, key_exponentials: Tensor, v: Tensor) -> Tensor:
    """The scores (B, Q, L), summed in float32 at least, without a gradient.

    key_exponentials: `exponentials` of the keys, here and below.
    """
    v = v.to(key_exponentials.dtype)
    scores = key_exponentials.new_empty(*query.shape[:2], keys.shape[1])  # (B, Q, L)
    for block, r in _blocks(query, keys, key_exponentials):
        torch.mv(r.flatten(end_dim=-2), v, out=scores[block].view(-1))  # (b * q * L)
    return scores.mul_(-2).add_(v.sum()).to(query.dtype)


@autocast_disabled()
def query_gradient(
    grad_scores: Tensor, query: Tensor, keys: Tensor, key_exponentials: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient of the scores (B, Q, L) -> of the queries, (B, Q, A), and of v, (A)."""
    grad_scores = grad_scores.to(key_exponentials.dtype)
    v = v.to(key_exponentials.dtype)
    grad_query = torch.empty_like(query, dtype=v.dtype)  # (B, Q, A)
    weighted_r = torch.zeros_like(v)  # (A)
    for block, r in _blocks(query, keys, key_exponentials):
        grad_block = grad_scores[block].unsqueeze(-2)  # (b, q, 1, L)
        weighted_r += (grad_block @ r).sum(dim=(0, 1, 2))
        slope = r.addcmul_(r, r, value=-1)  # (b, q, L, A), r (1 - r)
        grad_query[block] = (grad_block @ slope).squeeze(-2)  # (b, q, A)
    return grad_query.mul_(4 * v), grad_scores.sum() - 2 * weighted_r


@autocast_disabled()
def key_gradient(
    grad_scores: Tensor, query: Tensor, keys: Tensor, key_exponentials: Tensor, v: Tensor
) -> Tensor:
    """The gradient of the scores (B, Q, L) -> of the keys, (B, L, A), summed over the queries.

    Goes through one query at a time: the temporary is (b, L, A) for a block of b sources.
    """
    grad_scores = grad_scores.to(key_exponentials.dtype)
    r_of = _Sigmoid(query, keys, key_exponentials)
    grad_keys = torch.zeros_like(key_exponentials)  # (B, L, A)
    most = min(len(keys), max(1, _BLOCK_ELEMENTS // keys[0].numel()))
    buffer = key_exponentials.new_empty(most, *keys.shape[1:])
    for first in range(0, len(keys), most):
        sources = slice(first, first + most)
        total = grad_keys[sources]  # (b, L, A)
        r = buffer[: len(total)]
        for number in range(query.shape[1]):
            r_of((sources, number), sources, r)
            r.addcmul_(r, r, value=-1)  # (b, L, A), r (1 - r)
            total.addcmul_(r, grad_scores[sources, number].unsqueeze(-1))
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
    """Whether queries and keys may both be beyond `_SAFE_MAGNITUDE`, or one of them is NaN."""
    if all(abs(float(limit)) <= _SAFE_MAGNITUDE for limit in query.aminmax()):
        return False
    least, most = key_exponentials.aminmax()
    smallest, largest = math.exp(-2 * _SAFE_MAGNITUDE), math.exp(2 * _SAFE_MAGNITUDE)
    return not bool((least >= smallest) & (most <= largest))


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


class Recurrence(torch.autograd.Function):
    """The captioner's recurrence, Xu et al. 2015, equations 1 to 5, 9 and 13.

    For every word t of a caption, from h_0 and c_0:

        q_t = W_q h_{t-1}                                   the query of the additive score
        e_tl = v . tanh(q_t + k_l),  alpha_t = softmax(e_t)
        x_t = sum_l alpha_tl a_l                            or a_s of a drawn position s
        b_t = sigmoid(W_b h_{t-1} + b_b)                    the gate; 1 without one
        z_t = b_t x_t
        i, f, g, o = w_t + W [z_t; h_{t-1}]                 w_t: the word's part and the biases
        c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),  h_t = sigmoid(o) tanh(c_t)

    Autograd runs forty small operations a word and adds to the gradients of all weights and keys at
    every word. Here a backward step computes only what the step before it needs. The gradient of
    each weight is then one product over all words of all captions; that of the keys is one pass
    over each photo, which recomputes tanh instead of keeping it.

    N = B K captions. T comes first inside, so that the rows of a step are contiguous.
    """

    @staticmethod
    @autocast_disabled()
    def forward(
        ctx: Any,
        choose: Callable[[Tensor], Tensor] | None,
        expected: Tensor | None,
        words: Tensor,
        hidden: Tensor,
        cell: Tensor,
        values: Tensor,
        keys: Tensor,
        query: Tensor,
        v: Tensor,
        recurrent: Tensor,
        gate: Tensor | None,
        gate_bias: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Compute all words of the captions.

        choose: hard attention's draw, log-probabilities (B, K, L) -> positions (B, K), or None.
        expected: (B, K) boolean, captions for which hard attention takes the expected value.
        words w: (B, K, T, 4H). hidden, cell: (B, K, H). values: (B, L, D). keys: (B, L, A).
        query W_q: (A, H). v: (A), of any type. recurrent W: (4H, D + H). gate W_b, gate_bias b_b:
            (G, H) and (G) with G = 1 or D; None without a gate.

        Returns states h (B, K, T, H), gated contexts z (B, K, T, D), logarithms of the attention
        weights (B, K, T, L) and drawn positions (B, K, T), all 0 for soft attention.
        """
        batch_size, rows, steps, gates_size = words.shape
        captions = batch_size * rows  # N
        size = gates_size // 4  # H
        memory_size = values.shape[-1]  # D
        words_first = words.permute(2, 0, 1, 3).flatten(1, 2)  # (T, N, 4H)
        key_exponentials = exponentials(keys)  # (B, L, A)
        new_float = key_exponentials.new_empty
        new_product = recurrent.new_empty  # In the type of products.
        recurrent_in = new_product(steps + 1, captions, memory_size + size)  # [z_t; h_{t-1}]
        queries = new_float(steps, batch_size, rows, len(query))  # (T, B, K, A)
        log_alphas = new_float(steps, batch_size, rows, values.shape[1])  # (T, B, K, L)
        shares = torch.empty_like(log_alphas, dtype=values.dtype)  # (T, B, K, L)
        positions = torch.zeros_like(log_alphas[..., 0], dtype=torch.long)  # (T, B, K)
        contexts = new_product(steps, captions, memory_size)  # (T, N, D), before the gate
        gate_size = 1 if gate is None else len(gate)  # G
        betas = new_float(steps, captions, gate_size).fill_(1)
        gates = new_float(steps, captions, gates_size)  # (T, N, 4H), after activation
        cells = new_float(steps + 1, captions, size)  # (T + 1, N, H)
        cells[0] = cell.flatten(0, 1)
        recurrent_in[0, :, memory_size:] = hidden.flatten(0, 1)
        for time in range(steps):
            previous = recurrent_in[time, :, memory_size:]  # (N, H), h_{t-1}
            queries[time] = (previous @ query.t()).view(queries[time].shape)
            scores = additive_scores(queries[time], keys, key_exponentials, v)  # (B, K, L)
            log_alphas[time] = torch.log_softmax(scores, dim=-1)
            if choose is None:
                shares[time] = log_alphas[time].exp()
            else:
                positions[time] = choose(log_alphas[time])
                drawn = functional.one_hot(positions[time], values.shape[1]).to(log_alphas.dtype)
                if expected is not None:
                    drawn = torch.where(expected.unsqueeze(-1), log_alphas[time].exp(), drawn)
                shares[time] = drawn
            contexts[time] = (shares[time] @ values).flatten(end_dim=1)
            if gate is not None:
                betas[time] = functional.linear(previous, gate, gate_bias)
                betas[time].sigmoid_()
            recurrent_in[time, :, :memory_size] = betas[time] * contexts[time]
            product = recurrent_in[time] @ recurrent.t()  # (N, 4H)
            torch.add(words_first[time], product, out=gates[time])
            input_gate, forget_gate, candidate, output_gate = _activate(gates[time])
            torch.addcmul(input_gate * candidate, forget_gate, cells[time], out=cells[time + 1])
            recurrent_in[time + 1, :, memory_size:] = output_gate * torch.tanh(cells[time + 1])
        ctx.is_hard = choose is not None
        ctx.expected = expected
        ctx.types = [words.dtype, hidden.dtype, cell.dtype]
        of_steps = (recurrent_in, queries, log_alphas, shares, contexts, betas, gates, cells)
        ctx.save_for_backward(*of_steps, key_exponentials, values, keys, query, v, recurrent, gate)
        states = recurrent_in[1:, :, memory_size:].reshape(steps, batch_size, rows, size)
        gated = recurrent_in[:-1, :, :memory_size].reshape(steps, batch_size, rows, memory_size)
        by_time = (states, gated, log_alphas, positions)  # (T, B, K, ...) each
        return tuple(tensor.movedim(0, 2).contiguous() for tensor in by_time)

    @staticmethod
    @once_differentiable
    @autocast_disabled()
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the states, contexts and log-weights -> of the tensors of `forward`."""
        saved = ctx.saved_tensors
        recurrent_in, queries, log_alphas, shares, contexts, betas, gates, cells = saved[:8]
        key_exponentials, values, keys, query, v, recurrent, gate = saved[8:]
        steps, batch_size, rows, _ = log_alphas.shape
        memory_size = values.shape[-1]
        size = cells.shape[-1]
        # (T, B, K, ...) each.
        grad_states, grad_contexts, grad_log_alphas = (each.movedim(2, 0) for each in gradients[:3])
        kind = recurrent_in.dtype
        grad_gates = torch.empty_like(gates, dtype=kind)  # (T, N, 4H)
        grad_betas = torch.empty_like(betas, dtype=kind)  # (T, N, G), before the sigmoid
        grad_selected = torch.empty_like(contexts, dtype=values.dtype)  # (T, N, D)
        grad_queries = torch.empty_like(queries, dtype=kind)  # (T, B, K, A)
        grad_scores = torch.empty_like(log_alphas)  # (T, B, K, L)
        grad_v = torch.zeros_like(v, dtype=cells.dtype)  # (A)
        grad_hidden, grad_cell = torch.zeros_like(cells[:2])  # (N, H) each, back through time
        for time in range(steps - 1, -1, -1):
            grad_hidden = grad_hidden + grad_states[time].flatten(end_dim=1)
            grad_gates[time], grad_cell = _lstm_gradient(
                grad_hidden, grad_cell, gates[time], cells[time], cells[time + 1]
            )
            grad_in = grad_gates[time] @ recurrent  # (N, D + H)
            grad_gated = grad_in[:, :memory_size] + grad_contexts[time].flatten(end_dim=1)  # (N, D)
            grad_selected[time] = betas[time] * grad_gated
            # From here on of h_{t-1}.
            grad_hidden = grad_in[:, memory_size:].to(cells.dtype)  # (N, H)
            if gate is not None:
                grad_beta = (grad_gated * contexts[time]).sum_to_size(betas[time].shape)
                grad_betas[time] = grad_beta * betas[time] * (1 - betas[time])
                grad_hidden = grad_hidden + grad_betas[time] @ gate
            grad_context = grad_selected[time].view(batch_size, rows, memory_size)
            grad_shares = grad_context @ values.transpose(1, 2)  # (B, K, L)
            alphas = log_alphas[time].exp()  # (B, K, L)
            grad_log_alpha = grad_log_alphas[time]  # (B, K, L)
            # A draw has no gradient with respect to the scores; its log-weights have.
            if not ctx.is_hard:
                grad_log_alpha = grad_log_alpha + alphas * grad_shares
            elif ctx.expected is not None:
                is_expected = ctx.expected.unsqueeze(-1)  # (B, K, 1)
                grad_log_alpha = grad_log_alpha + alphas * grad_shares * is_expected
            total = grad_log_alpha.sum(dim=-1, keepdim=True)
            grad_scores[time] = grad_log_alpha - alphas * total
            grad_queries[time], grad_v_step = query_gradient(
                grad_scores[time], queries[time], keys, key_exponentials, v
            )
            grad_v += grad_v_step
            grad_hidden = grad_hidden + grad_queries[time].flatten(end_dim=1) @ query
        previous = recurrent_in[:-1, :, memory_size:].flatten(end_dim=1)  # (T N, H), every h_{t-1}
        grad_values = grad_gate = grad_gate_bias = None
        if ctx.needs_input_grad[5]:
            grad_context = grad_selected.view(steps, batch_size, rows, memory_size)
            grad_values = _by_source(shares).transpose(1, 2) @ _by_source(grad_context)  # (B, L, D)
        grad_keys = key_gradient(  # (B, L, A)
            _by_source(grad_scores), _by_source(queries), keys, key_exponentials, v
        ).to(keys.dtype)
        if gate is not None:
            grad_gate = grad_betas.flatten(end_dim=1).t() @ previous
            grad_gate_bias = grad_betas.sum(dim=(0, 1))
        grad_words = grad_gates.view(steps, batch_size, rows, 4 * size).movedim(0, 2)
        return (
            None,
            None,
            grad_words.to(ctx.types[0]),
            grad_hidden.view(batch_size, rows, size).to(ctx.types[1]),
            grad_cell.view(batch_size, rows, size).to(ctx.types[2]),
            grad_values,
            grad_keys,
            grad_queries.flatten(end_dim=2).t() @ previous,
            grad_v.to(v.dtype),
            grad_gates.flatten(end_dim=1).t() @ recurrent_in[:-1].flatten(end_dim=1),
            grad_gate,
            grad_gate_bias,
        )


def _by_source(tensor: Tensor) -> Tensor:
    """(T, B, K, ...) -> (B, K T, ...)."""
    return tensor.movedim(0, 2).flatten(1, 2)


def _activate(gates: Tensor) -> tuple[Tensor, ...]:
    """Activate LSTM gates (N, 4H), in torch's order, in place: (N, H) each."""
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
    return input_gate.sigmoid_(), forget_gate.sigmoid_(), candidate.tanh_(), output_gate.sigmoid_()


def _lstm_gradient(
    grad_hidden: Tensor, grad_cell: Tensor, gates: Tensor, previous: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients (N, H) of h_t and c_t -> of the gates before activation, and of c_{t-1}.

    gates: (N, 4H), after activation. previous, cell: (N, H), c_{t-1} and c_t.
    """
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)  # (N, H) each
    squashed = torch.tanh(cell)
    grad_cell = grad_cell + grad_hidden * output_gate * (1 - squashed * squashed)
    grad_gates = torch.cat(
        [
            grad_cell * candidate * input_gate * (1 - input_gate),
            grad_cell * previous * forget_gate * (1 - forget_gate),
            grad_cell * input_gate * (1 - candidate * candidate),
            grad_hidden * squashed * output_gate * (1 - output_gate),
        ],
        dim=-1,
    )  # (N, 4H)
    return grad_gates, grad_cell * forget_gate
