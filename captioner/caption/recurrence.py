"""The decoder's recurrence over given words, with its gradient written out.

Xu et al. 2015, equations 1 to 5, 9 and 13, for every word t of a caption, from h_0 and c_0:

    q_t = W_q h_{t-1}                                   the query of the additive score
    e_tl = v . tanh(q_t + k_l),  alpha_t = softmax(e_t)
    x_t = sum_l alpha_tl a_l                            or a_s of the place s that was drawn
    b_t = sigmoid(W_b h_{t-1} + b_b)                    the gate; 1 without one
    z_t = b_t x_t
    i, f, g, o = w_t + W [z_t; h_{t-1}]                 w_t: the word's part and the biases
    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),  h_t = sigmoid(o) tanh(c_t)

Under autograd this is forty small operations a word, and the gradients of all weights and of the
keys are added up at every one. Going back through time by hand, a step computes only what it hands
to the step before it. The weights' gradients are then one product each, over all words of all
captions, and the keys' one pass over each photo, in which tanh is computed anew instead of kept.

Scores, attention weights, gates and cells are float32 at least; products are computed in the type
of the weights given, in an autocast region too. N = B K captions; T is kept first, for a step's
rows to lie together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from captioner.attention.fused_additive import additive_scores, key_gradient, query_gradient
from captioner.attention.products import in_types_given
from captioner.attention.selection import masked_log_softmax


class Weights(NamedTuple):
    """The recurrence's weights, in the type that products are computed in.

    query: W_q (A, H). energy: v (A), of any type. recurrent: W (4H, D + H).
    gate, gate_bias: W_b (G, H) and b_b (G) with G = 1 or D; None without a gate.
    """

    query: Tensor
    energy: Tensor
    recurrent: Tensor
    gate: Tensor | None
    gate_bias: Tensor | None


class Looks(NamedTuple):
    """What the recurrence is given that has no gradient.

    exponentials: (B, L, A), of the keys. mask: (B, L) boolean, or None.
    choose: what draws places (B, K) from the logarithms (B, K, L) of their probabilities, for hard
        attention; None for soft. expected: (B, K) boolean, captions that are given the expected
        value all the same; None for none.
    """

    exponentials: Tensor
    mask: Tensor | None
    choose: Callable[[Tensor], Tensor] | None
    expected: Tensor | None


class Recurrence(torch.autograd.Function):
    """`Recurrence.apply(looks, words, hidden, cell, values, keys, *weights)`.

    words w (B, K, T, 4H), hidden and cell (B, K, H), values (B, L, D), keys (B, L, A) -> states
    h (B, K, T, H), gated contexts z (B, K, T, D), logarithms of the attention weights
    (B, K, T, L) and the places drawn (B, K, T), all 0 for soft attention.
    """

    @staticmethod
    @in_types_given
    def forward(
        ctx: Any,
        looks: Looks,
        words: Tensor,
        hidden: Tensor,
        cell: Tensor,
        values: Tensor,
        keys: Tensor,
        *given: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See the class."""
        weights = Weights(*given)  # type: ignore[arg-type]
        batch_size, rows, steps, gates_size = words.shape
        captions, size, memory_size = batch_size * rows, gates_size // 4, values.shape[-1]
        mask = None if looks.mask is None else looks.mask.unsqueeze(1)  # (B, 1, L)
        words_first = words.permute(2, 0, 1, 3).flatten(1, 2)  # (T, N, 4H)
        wide, narrow = looks.exponentials.new_empty, weights.recurrent.new_empty
        fed = narrow(steps + 1, captions, memory_size + size)  # (T + 1, N, D + H), [z_t; h_{t-1}]
        queries = wide(steps, batch_size, rows, len(weights.query))  # (T, B, K, A)
        logarithms = wide(steps, batch_size, rows, values.shape[1])  # (T, B, K, L)
        shares = torch.empty_like(logarithms, dtype=values.dtype)  # (T, B, K, L)
        places = torch.zeros_like(logarithms[..., 0], dtype=torch.long)  # (T, B, K)
        contexts = narrow(steps, captions, memory_size)  # (T, N, D), before the gate
        opened = wide(steps, captions, 1 if weights.gate is None else len(weights.gate)).fill_(1)
        gates = wide(steps, captions, gates_size)  # (T, N, 4H), as activated
        cells = wide(steps + 1, captions, size)  # (T + 1, N, H)
        cells[0], fed[0, :, memory_size:] = cell.flatten(end_dim=1), hidden.flatten(end_dim=1)
        for time in range(steps):
            before = fed[time, :, memory_size:]  # (N, H)
            queries[time] = (before @ weights.query.t()).view(queries[time].shape)
            scores = additive_scores(queries[time], keys, looks.exponentials, weights.energy)
            logarithms[time] = masked_log_softmax(scores, mask)  # (B, K, L)
            if looks.choose is not None:
                places[time] = looks.choose(logarithms[time])
            shares[time] = _shares(looks, logarithms[time], places[time])
            contexts[time] = (shares[time] @ values).flatten(end_dim=1)
            if weights.gate is not None:
                opened[time] = functional.linear(before, weights.gate, weights.gate_bias)
                opened[time].sigmoid_()
            fed[time, :, :memory_size] = opened[time] * contexts[time]
            torch.add(words_first[time], fed[time] @ weights.recurrent.t(), out=gates[time])
            entry, forget, candidate, exit_ = _activate(gates[time])
            torch.addcmul(entry * candidate, forget, cells[time], out=cells[time + 1])
            fed[time + 1, :, memory_size:] = exit_ * torch.tanh(cells[time + 1])
        ctx.looks = looks
        ctx.types = [each.dtype for each in (words, hidden, cell)]
        kept = (fed, queries, logarithms, shares, contexts, opened, gates, cells)
        ctx.save_for_backward(*kept, values, keys, *weights)
        ctx.mark_non_differentiable(places)
        states = fed[1:, :, memory_size:].reshape(steps, batch_size, rows, size)
        gated = fed[:-1, :, :memory_size].reshape(steps, batch_size, rows, memory_size)
        return (
            states.permute(1, 2, 0, 3).contiguous(),
            gated.permute(1, 2, 0, 3).contiguous(),
            logarithms.permute(1, 2, 0, 3).contiguous(),
            places.permute(1, 2, 0).contiguous(),
        )

    @staticmethod
    @once_differentiable
    @in_types_given
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the states, contexts and logarithms -> those of what was given."""
        looks: Looks = ctx.looks
        fed, queries, logarithms, shares, contexts, opened, gates, cells, *rest = ctx.saved_tensors
        values, keys, weights = rest[0], rest[1], Weights(*rest[2:])
        steps, batch_size, rows, _ = logarithms.shape
        memory_size, size = values.shape[-1], cells.shape[-1]
        of_states, of_contexts, of_logarithms = (
            gradient.permute(2, 0, 1, 3) for gradient in gradients[:3]
        )  # (T, B, K, ...)
        of_gates = torch.empty_like(gates, dtype=fed.dtype)  # (T, N, 4H)
        of_opened = torch.empty_like(opened, dtype=fed.dtype)  # (T, N, G)
        of_selected = torch.empty_like(contexts, dtype=values.dtype)  # (T, N, D)
        of_queries = torch.empty_like(queries, dtype=fed.dtype)  # (T, B, K, A)
        of_scores = torch.empty_like(logarithms)  # (T, B, K, L)
        of_energy = torch.zeros_like(weights.energy, dtype=cells.dtype)  # (A)
        of_hidden, of_cell = torch.zeros_like(cells[:2])  # (N, H) each, handed back through time
        for time in range(steps - 1, -1, -1):
            of_hidden = of_hidden + of_states[time].flatten(end_dim=1)
            of_gates[time], of_cell = _lstm_gradient(
                of_hidden, of_cell, gates[time], cells[time], cells[time + 1]
            )
            of_fed = of_gates[time] @ weights.recurrent  # (N, D + H)
            of_gated = of_fed[:, :memory_size] + of_contexts[time].flatten(end_dim=1)  # (N, D)
            of_selected[time] = opened[time] * of_gated
            of_hidden = of_fed[:, memory_size:].to(cells.dtype)  # (N, H), of h_{t-1} from here on
            if weights.gate is not None:
                of_opening = (of_gated * contexts[time]).sum_to_size(opened[time].shape)
                of_opened[time] = of_opening * opened[time] * (1 - opened[time])
                of_hidden = of_hidden + of_opened[time] @ weights.gate
            of_chosen = of_selected[time].view(batch_size, rows, memory_size)
            of_shares = of_chosen @ values.transpose(1, 2)  # (B, K, L)
            of_scores[time] = _score_gradient(
                looks, logarithms[time], of_logarithms[time], of_shares
            )
            of_queries[time], of_this = query_gradient(
                of_scores[time], queries[time], keys, looks.exponentials, weights.energy
            )
            of_energy += of_this
            of_hidden = of_hidden + of_queries[time].flatten(end_dim=1) @ weights.query
        states = fed[:-1, :, memory_size:].flatten(end_dim=1)  # (T N, H), every h_{t-1}
        by_caption = (1, 2, 0, 3)
        of_values = of_keys = of_gate = of_gate_bias = None
        if ctx.needs_input_grad[4]:
            of_chosen = of_selected.view(steps, batch_size, rows, memory_size)
            of_values = torch.matmul(
                shares.permute(by_caption).flatten(1, 2).transpose(1, 2),  # (B, L, K T)
                of_chosen.permute(by_caption).flatten(1, 2),  # (B, K T, D)
            )  # (B, L, D)
        if ctx.needs_input_grad[5]:
            of_keys = key_gradient(
                of_scores.permute(by_caption).flatten(1, 2),  # (B, K T, L)
                queries.permute(by_caption).flatten(1, 2),  # (B, K T, A)
                keys,
                looks.exponentials,
                weights.energy,
            ).to(keys.dtype)
        if weights.gate is not None:
            of_gate = of_opened.flatten(end_dim=1).t() @ states
            of_gate_bias = of_opened.sum(dim=(0, 1))
        shape = (batch_size, rows, size)
        return (
            None,
            of_gates.view(steps, batch_size, rows, 4 * size).permute(by_caption).to(ctx.types[0]),
            of_hidden.view(shape).to(ctx.types[1]),
            of_cell.view(shape).to(ctx.types[2]),
            of_values,
            of_keys,
            of_queries.flatten(end_dim=2).t() @ states,
            of_energy.to(weights.energy.dtype),
            of_gates.flatten(end_dim=1).t() @ fed[:-1].flatten(end_dim=1),
            of_gate,
            of_gate_bias,
        )


def _shares(looks: Looks, logarithms: Tensor, places: Tensor) -> Tensor:
    """The part (B, K, L) that each annotation vector has in the context."""
    if looks.choose is None:
        return logarithms.exp()
    drawn = functional.one_hot(places, logarithms.shape[-1]).to(logarithms.dtype)
    if looks.expected is None:
        return drawn
    return torch.where(looks.expected.unsqueeze(-1), logarithms.exp(), drawn)


def _score_gradient(
    looks: Looks, logarithms: Tensor, of_logarithms: Tensor, of_shares: Tensor
) -> Tensor:
    """Gradients (B, K, L) of the logarithms and of the shares -> that of the scores.

    What was drawn is no function of the scores: there only the logarithms have a gradient.
    """
    weights = logarithms.exp()  # (B, K, L)
    if looks.choose is None:
        of_logarithms = of_logarithms + weights * of_shares
    elif looks.expected is not None:
        smooth = weights * of_shares * looks.expected.unsqueeze(-1)
        of_logarithms = of_logarithms + smooth
    return of_logarithms - weights * of_logarithms.sum(dim=-1, keepdim=True)


def _activate(gates: Tensor) -> tuple[Tensor, ...]:
    """The LSTM's gates (N, 4H), in torch's order, through sigmoid or tanh in place: (N, H) each."""
    entry, forget, candidate, exit_ = gates.chunk(4, dim=-1)
    return entry.sigmoid_(), forget.sigmoid_(), candidate.tanh_(), exit_.sigmoid_()


def _lstm_gradient(
    of_hidden: Tensor, of_cell: Tensor, gates: Tensor, before: Tensor, after: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients (N, H) of h_t and c_t -> those of the gates before activation, and of c_{t-1}.

    gates: (N, 4H), as activated. before, after: (N, H), c_{t-1} and c_t.
    """
    entry, forget, candidate, exit_ = gates.chunk(4, dim=-1)  # (N, H) each
    bent = torch.tanh(after)
    of_cell = of_cell + of_hidden * exit_ * (1 - bent * bent)
    of_gates = torch.cat(
        [
            of_cell * candidate * entry * (1 - entry),
            of_cell * before * forget * (1 - forget),
            of_cell * entry * (1 - candidate * candidate),
            of_hidden * bent * exit_ * (1 - exit_),
        ],
        dim=-1,
    )  # (N, 4H)
    return of_gates, of_cell * forget
