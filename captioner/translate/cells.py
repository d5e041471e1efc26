"""Recurrent decoder layers over (B, K, T) rows of steps, and a cell that is fed a context.

GRU (Cho et al. 2014) and LSTM (Hochreiter and Schmidhuber 1997) as in torch: the GRU's reset gate
is applied after the recurrent matrix, in the papers before it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from captioner.translate.source_memory import RecurrentState


def run_recurrent_network(
    network: nn.GRU | nn.LSTM, inputs: Any, state: RecurrentState | None = None
) -> tuple[Any, Any]:
    """Call torch's GRU or LSTM in the type of its weights; returns outputs and a `RecurrentState`.

    inputs: a tensor or a `PackedSequence`. Autocast casts cuDNN's recurrent networks to float16,
    whatever its own type is: without loss scaling their gradients vanish. oneDNN has no LSTM in
    bfloat16 for CPUs without AVX-512, and fails.
    """
    weight = next(network.parameters())
    before: Any = None if state is None else tuple(each.to(weight.dtype) for each in state)
    if before is not None and isinstance(network, nn.GRU):
        (before,) = before
    with torch.autocast(weight.device.type, enabled=False):
        outputs, after = network(inputs.to(weight.dtype), before)
    return outputs, after if isinstance(after, tuple) else (after,)


class RecurrentStack(nn.Module):
    """A GRU or LSTM of several layers over whole sequences or single steps.

    kind: `gru` or `lstm`. dropout: probability between layers.
    """

    def __init__(
        self, kind: str, input_size: int, hidden_size: int, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        make = nn.GRU if kind == "gru" else nn.LSTM
        dropout = dropout if layers > 1 else 0.0
        self.network = make(input_size, hidden_size, layers, batch_first=True, dropout=dropout)

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Inputs (B, K, T, I) and states (B, K, layers, H) -> outputs (B, K, T, H), states."""
        batch_size, rows = inputs.shape[:2]
        before = tuple(
            each.flatten(end_dim=1).transpose(0, 1).contiguous() for each in state
        )  # (layers, B * K, H)
        outputs, after = run_recurrent_network(
            self.network, inputs.flatten(end_dim=1), before
        )  # (B * K, T, H)
        return outputs.unflatten(0, (batch_size, rows)), tuple(  # (B, K, T, H)
            each.transpose(0, 1).unflatten(0, (batch_size, rows))  # (B, K, layers, H)
            for each in after
        )


class FedCell(nn.Module):
    """A GRU or LSTM cell with a precomputed input projection and a recurrent context input.

    `project_input` projects the known inputs (embeddings) of all steps in one product; only the
    context vector, which depends on the step before, is projected step by step.

    kind: `gru` or `lstm`. known_size: of the known input. fed_size: of the context input, or 0.
    """

    def __init__(self, kind: str, known_size: int, fed_size: int, hidden_size: int) -> None:
        super().__init__()
        gates = 3 if kind == "gru" else 4
        self.kind = kind
        self.known = nn.Linear(known_size, gates * hidden_size)
        self.fed = nn.Linear(fed_size, gates * hidden_size, bias=False) if fed_size else None
        self.hidden = nn.Linear(hidden_size, gates * hidden_size)
        with torch.no_grad():
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)
            if kind == "lstm":
                self.known.bias[hidden_size : 2 * hidden_size] = 1.0  # An open forget gate.

    def project_input(self, known: Tensor) -> Tensor:
        """Known inputs (..., I) -> their part of the gates (..., 3H or 4H), in torch's order."""
        gates: Tensor = self.known(known)
        return gates

    def forward(self, gates: Tensor, fed: Tensor | None, state: RecurrentState) -> RecurrentState:
        """A step's `project_input` (..., gates), context (..., F), states (..., H) -> states."""
        if self.fed is not None:
            gates = gates + self.fed(fed)
        recurrent = self.hidden(state[0])  # (..., gates)
        if self.kind == "gru":
            reset, update, candidate = gates.chunk(3, dim=-1)  # (..., H) each
            recurrent_reset, recurrent_update, recurrent_candidate = recurrent.chunk(3, dim=-1)
            reset = torch.sigmoid(reset + recurrent_reset)
            update = torch.sigmoid(update + recurrent_update)
            candidate = torch.tanh(candidate + reset * recurrent_candidate)
            # Not `torch.lerp`: under autocast the types differ.
            return (candidate + update * (state[0] - candidate),)
        input_gate, forget_gate, candidate, output_gate = (gates + recurrent).chunk(4, dim=-1)
        cell = torch.sigmoid(forget_gate) * state[1]
        cell = cell + torch.sigmoid(input_gate) * torch.tanh(candidate)  # (..., H)
        return torch.sigmoid(output_gate) * torch.tanh(cell), cell
