"""The captioner's recurrence over given words, with a hand-written gradient.

Xu et al. 2015, equations 1 to 5, 9 and 13, for every word t of a caption, from h_0 and c_0:

    q_t = W_q h_{t-1}                                   the query of the additive score
    e_tl = v . tanh(q_t + k_l),  alpha_t = softmax(e_t)
    x_t = sum_l alpha_tl a_l                            or a_s of a drawn position s
    b_t = sigmoid(W_b h_{t-1} + b_b)                    the gate; 1 without one
    z_t = b_t x_t
    i, f, g, o = w_t + W [z_t; h_{t-1}]                 w_t: the word's part and the biases
    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),  h_t = sigmoid(o) tanh(c_t)

Autograd runs forty small operations a word and adds to the gradients of all weights and keys at
every word. Here a backward step computes only what the step before it needs. The gradient of each
weight is then one product over all words of all captions; that of the keys is one pass over each
photo, which recomputes tanh instead of keeping it.

Scores, attention weights, gates and cells are float32 at least; products are computed in the type
of the given weights, also in an autocast region. N = B K captions. T comes first inside, so that
the rows of a step are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from captioner.cpu.additive import (
    additive_scores,
    autocast_disabled,
    exponentials,
    key_gradient,
    query_gradient,
)


class RecurrenceWeights(NamedTuple):
    """Weights of the recurrence, in the type that products are computed in.

    query: W_q (A, H). v: (A), of any type. recurrent: W (4H, D + H).
    gate, gate_bias: W_b (G, H) and b_b (G) with G = 1 or D; None without a gate.
    """

    query: Tensor
    v: Tensor
    recurrent: Tensor
    gate: Tensor | None
    gate_bias: Tensor | None


class RecurrenceInputs(NamedTuple):
    """Inputs of the recurrence that have no gradient.

    choose: hard attention's draw, log-probabilities (B, K, L) -> positions (B, K); None for soft.
    expected: (B, K) boolean, captions for which hard attention takes the expected value; None for
        none.
    """

    choose: Callable[[Tensor], Tensor] | None
    expected: Tensor | None


class Recurrence(torch.autograd.Function):
    """`Recurrence.apply(inputs, words, hidden, cell, values, keys, *weights)`.

    words w (B, K, T, 4H), hidden and cell (B, K, H), values (B, L, D), keys (B, L, A) -> states
    h (B, K, T, H), gated contexts z (B, K, T, D), logarithms of the attention weights
    (B, K, T, L) and drawn positions (B, K, T), all 0 for soft attention.
    """

    @staticmethod
    @autocast_disabled
    def forward(
        ctx: Any,
        inputs: RecurrenceInputs,
        words: Tensor,
        hidden: Tensor,
        cell: Tensor,
        values: Tensor,
        keys: Tensor,
        *given: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See the class."""
        weights = RecurrenceWeights(*given)  # type: ignore[arg-type]
        batch_size, rows, steps, gates_size = words.shape
        captions, size, memory_size = batch_size * rows, gates_size // 4, values.shape[-1]
        words_first = words.permute(2, 0, 1, 3).flatten(1, 2)  # (T, N, 4H)
        key_exponentials = exponentials(keys)  # (B, L, A)
        new_float = key_exponentials.new_empty
        new_product = weights.recurrent.new_empty  # In the type of products.
        recurrent_in = new_product(steps + 1, captions, memory_size + size)  # [z_t; h_{t-1}]
        queries = new_float(steps, batch_size, rows, len(weights.query))  # (T, B, K, A)
        log_alphas = new_float(steps, batch_size, rows, values.shape[1])  # (T, B, K, L)
        shares = torch.empty_like(log_alphas, dtype=values.dtype)  # (T, B, K, L)
        positions = torch.zeros_like(log_alphas[..., 0], dtype=torch.long)  # (T, B, K)
        contexts = new_product(steps, captions, memory_size)  # (T, N, D), before the gate
        gate_size = 1 if weights.gate is None else len(weights.gate)  # G
        betas = new_float(steps, captions, gate_size).fill_(1)
        gates = new_float(steps, captions, gates_size)  # (T, N, 4H), after activation
        cells = new_float(steps + 1, captions, size)  # (T + 1, N, H)
        cells[0], recurrent_in[0, :, memory_size:] = cell.flatten(0, 1), hidden.flatten(0, 1)
        for time in range(steps):
            previous = recurrent_in[time, :, memory_size:]  # (N, H), h_{t-1}
            queries[time] = (previous @ weights.query.t()).view(queries[time].shape)
            scores = additive_scores(queries[time], keys, key_exponentials, weights.v)  # (B, K, L)
            log_alphas[time] = torch.log_softmax(scores, dim=-1)
            if inputs.choose is not None:
                positions[time] = inputs.choose(log_alphas[time])
            shares[time] = _shares(inputs, log_alphas[time], positions[time])
            contexts[time] = (shares[time] @ values).flatten(end_dim=1)
            if weights.gate is not None:
                betas[time] = functional.linear(previous, weights.gate, weights.gate_bias)
                betas[time].sigmoid_()
            recurrent_in[time, :, :memory_size] = betas[time] * contexts[time]
            product = recurrent_in[time] @ weights.recurrent.t()  # (N, 4H)
            torch.add(words_first[time], product, out=gates[time])
            input_gate, forget_gate, candidate, output_gate = _activate(gates[time])
            torch.addcmul(input_gate * candidate, forget_gate, cells[time], out=cells[time + 1])
            recurrent_in[time + 1, :, memory_size:] = output_gate * torch.tanh(cells[time + 1])
        ctx.inputs = inputs
        ctx.types = [each.dtype for each in (words, hidden, cell)]
        of_steps = (recurrent_in, queries, log_alphas, shares, contexts, betas, gates, cells)
        ctx.save_for_backward(*of_steps, key_exponentials, values, keys, *weights)
        states = recurrent_in[1:, :, memory_size:].reshape(steps, batch_size, rows, size)
        gated = recurrent_in[:-1, :, :memory_size].reshape(steps, batch_size, rows, memory_size)
        return (
            states.permute(1, 2, 0, 3).contiguous(),
            gated.permute(1, 2, 0, 3).contiguous(),
            log_alphas.permute(1, 2, 0, 3).contiguous(),
            positions.permute(1, 2, 0).contiguous(),
        )

    @staticmethod
    @once_differentiable
    @autocast_disabled
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the states, contexts and log-weights -> of the tensors of `forward`."""
        inputs: RecurrenceInputs = ctx.inputs
        recurrent_in, queries, log_alphas, shares, contexts, betas, gates, cells, *rest = (
            ctx.saved_tensors
        )
        key_exponentials, values, keys = rest[:3]
        weights = RecurrenceWeights(*rest[3:])
        steps, batch_size, rows, _ = log_alphas.shape
        memory_size, size = values.shape[-1], cells.shape[-1]
        grad_states, grad_contexts, grad_log_alphas = (
            gradient.permute(2, 0, 1, 3) for gradient in gradients[:3]
        )  # (T, B, K, ...)
        kind = recurrent_in.dtype
        grad_gates = torch.empty_like(gates, dtype=kind)  # (T, N, 4H)
        grad_betas = torch.empty_like(betas, dtype=kind)  # (T, N, G), before the sigmoid
        grad_selected = torch.empty_like(contexts, dtype=values.dtype)  # (T, N, D)
        grad_queries = torch.empty_like(queries, dtype=kind)  # (T, B, K, A)
        grad_scores = torch.empty_like(log_alphas)  # (T, B, K, L)
        grad_v = torch.zeros_like(weights.v, dtype=cells.dtype)  # (A)
        grad_hidden, grad_cell = torch.zeros_like(cells[:2])  # (N, H) each, back through time
        for time in range(steps - 1, -1, -1):
            grad_hidden = grad_hidden + grad_states[time].flatten(end_dim=1)
            grad_gates[time], grad_cell = _lstm_gradient(
                grad_hidden, grad_cell, gates[time], cells[time], cells[time + 1]
            )
            grad_in = grad_gates[time] @ weights.recurrent  # (N, D + H)
            grad_gated = grad_in[:, :memory_size] + grad_contexts[time].flatten(end_dim=1)  # (N, D)
            grad_selected[time] = betas[time] * grad_gated
            # From here on of h_{t-1}.
            grad_hidden = grad_in[:, memory_size:].to(cells.dtype)  # (N, H)
            if weights.gate is not None:
                grad_beta = (grad_gated * contexts[time]).sum_to_size(betas[time].shape)
                grad_betas[time] = grad_beta * betas[time] * (1 - betas[time])
                grad_hidden = grad_hidden + grad_betas[time] @ weights.gate
            grad_context = grad_selected[time].view(batch_size, rows, memory_size)
            grad_shares = grad_context @ values.transpose(1, 2)  # (B, K, L)
            grad_scores[time] = _score_gradient(
                inputs, log_alphas[time], grad_log_alphas[time], grad_shares
            )
            grad_queries[time], grad_v_step = query_gradient(
                grad_scores[time], queries[time], keys, key_exponentials, weights.v
            )
            grad_v += grad_v_step
            grad_hidden = grad_hidden + grad_queries[time].flatten(end_dim=1) @ weights.query
        previous = recurrent_in[:-1, :, memory_size:].flatten(end_dim=1)  # (T N, H), every h_{t-1}
        by_caption = (1, 2, 0, 3)
        grad_values = grad_gate = grad_gate_bias = None
        if ctx.needs_input_grad[4]:
            grad_context = grad_selected.view(steps, batch_size, rows, memory_size)
            grad_values = torch.matmul(
                shares.permute(by_caption).flatten(1, 2).transpose(1, 2),  # (B, L, K T)
                grad_context.permute(by_caption).flatten(1, 2),  # (B, K T, D)
            )  # (B, L, D)
        grad_keys = key_gradient(
            grad_scores.permute(by_caption).flatten(1, 2),  # (B, K T, L)
            queries.permute(by_caption).flatten(1, 2),  # (B, K T, A)
            keys,
            key_exponentials,
            weights.v,
        ).to(keys.dtype)
        if weights.gate is not None:
            grad_gate = grad_betas.flatten(end_dim=1).t() @ previous
            grad_gate_bias = grad_betas.sum(dim=(0, 1))
        grad_words = grad_gates.view(steps, batch_size, rows, 4 * size).permute(by_caption)
        return (
            None,
            grad_words.to(ctx.types[0]),
            grad_hidden.view(batch_size, rows, size).to(ctx.types[1]),
            grad_cell.view(batch_size, rows, size).to(ctx.types[2]),
            grad_values,
            grad_keys,
            grad_queries.flatten(end_dim=2).t() @ previous,
            grad_v.to(weights.v.dtype),
            grad_gates.flatten(end_dim=1).t() @ recurrent_in[:-1].flatten(end_dim=1),
            grad_gate,
            grad_gate_bias,
        )


def _shares(inputs: RecurrenceInputs, log_alphas: Tensor, positions: Tensor) -> Tensor:
    """The share (B, K, L) of each annotation vector in the context."""
    if inputs.choose is None:
        return log_alphas.exp()
    drawn = functional.one_hot(positions, log_alphas.shape[-1]).to(log_alphas.dtype)
    if inputs.expected is None:
        return drawn
    return torch.where(inputs.expected.unsqueeze(-1), log_alphas.exp(), drawn)


def _score_gradient(
    inputs: RecurrenceInputs, log_alphas: Tensor, grad_log_alphas: Tensor, grad_shares: Tensor
) -> Tensor:
    """Gradients (B, K, L) of the log-weights and of the shares -> of the scores.

    A draw has no gradient with respect to the scores; its log-weights have.
    """
    alphas = log_alphas.exp()  # (B, K, L)
    if inputs.choose is None:
        grad_log_alphas = grad_log_alphas + alphas * grad_shares
    elif inputs.expected is not None:
        grad_log_alphas = grad_log_alphas + alphas * grad_shares * inputs.expected.unsqueeze(-1)
    return grad_log_alphas - alphas * grad_log_alphas.sum(dim=-1, keepdim=True)


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
