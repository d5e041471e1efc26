"""Recurrent networks over rows of steps: whole layers at once, or one step that is fed a context.

GRU (Cho et al. 2014) and LSTM (Hochreiter and Schmidhuber 1997) in torch's forms: the GRU's reset
gate acts behind the matrix, which the papers have before it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from captioner.translate.source_memory import RecurrentState


def run_recurrent_network(network: nn.GRU | nn.LSTM, inputs: Tensor, state: Any = None) -> Any:
    """Call torch's GRU or LSTM; an LSTM on a CPU keeps the type of its weights under autocast.

    In bfloat16 oneDNN has no LSTM for CPUs without AVX-512, and fails.
    """
    if inputs.device.type != "cpu" or not isinstance(network, nn.LSTM):
        return network(inputs, state)
    dtype = next(network.parameters()).dtype
    if state is not None:
        state = tuple(each.to(dtype) for each in state)
    with torch.autocast("cpu", enabled=False):
        return network(inputs.to(dtype), state)


class RecurrentStack(nn.Module):
    """Layers of one kind of cell, one upon the other, over whole sequences or single steps.

    kind: `gru` or `lstm`. dropout: probability, between layers.
    """

    def __init__(
        self, kind: str, input_size: int, hidden_size: int, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        make = nn.GRU if kind == "gru" else nn.LSTM
        between = dropout if layers > 1 else 0.0
        self.network = make(input_size, hidden_size, layers, batch_first=True, dropout=between)

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Inputs (B, K, T, I) and states (B, K, layers, H) -> outputs (B, K, T, H), states."""
        batch_size, rows = inputs.shape[:2]
        before = tuple(
            each.flatten(end_dim=1).transpose(0, 1).contiguous() for each in state
        )  # (layers, B * K, H)
        outputs, after = run_recurrent_network(
            self.network, inputs.flatten(end_dim=1), before[0] if len(before) == 1 else before
        )  # (B * K, T, H)
        after = (after,) if len(before) == 1 else after
        return outputs.unflatten(0, (batch_size, rows)), tuple(  # (B, K, T, H)
            each.transpose(0, 1).unflatten(0, (batch_size, rows))  # (B, K, layers, H)
            for each in after
        )


class FedCell(nn.Module):
    """One step of a GRU or LSTM whose input is two: what is known ahead, and what is fed.

    What is known of all steps (embeddings) goes through its weights in one product, by `ahead`;
    only what depends on the step before (a context vector) goes through them step by step.

    kind: `gru` or `lstm`. known_size: of what is known ahead. fed_size: of what is fed, may be 0.
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
                self.known.bias[hidden_size : 2 * hidden_size] = 1.0  # At first it remembers.

    def ahead(self, known: Tensor) -> Tensor:
        """What is known (..., I) -> its part of the gates (..., 3H or 4H), in torch's order."""
        part: Tensor = self.known(known)
        return part

    def forward(self, ahead: Tensor, fed: Tensor | None, state: RecurrentState) -> RecurrentState:
        """A step's `ahead` (..., gates), what is fed (..., F), states (..., H) -> new states."""
        if self.fed is not None:
            ahead = ahead + self.fed(fed)
        within = self.hidden(state[0])  # (..., gates)
        if self.kind == "gru":
            reset, update, candidate = ahead.chunk(3, dim=-1)  # (..., H) each
            own_reset, own_update, own_candidate = within.chunk(3, dim=-1)  # (..., H) each
            new = torch.tanh(candidate + torch.sigmoid(reset + own_reset) * own_candidate)
            kept = torch.sigmoid(update + own_update)
            return (new + kept * (state[0] - new),)  # Under autocast they differ in type.
        entry, forget, candidate, exit_ = (ahead + within).chunk(4, dim=-1)  # (..., H) each
        cell = torch.sigmoid(forget) * state[1] + torch.sigmoid(entry) * torch.tanh(candidate)
        return torch.sigmoid(exit_) * torch.tanh(cell), cell
