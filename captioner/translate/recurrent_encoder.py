"""Recurrent encoders: tokens to one vector each, and the final state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from captioner.translate.cells import run_recurrent_network
from captioner.translate.source_memory import RecurrentState


class RecurrentEncoder(nn.Module):
    """A GRU or LSTM of several layers over the source, in one or both directions.

    kind: `gru` or `lstm`. size: D of the outputs; if bidirectional, the forward half comes first,
    then the backward half. dropout: probability between layers.
    """

    def __init__(
        self,
        kind: str,
        input_size: int,
        size: int,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        make = nn.GRU if kind == "gru" else nn.LSTM
        self.network = make(
            input_size,
            size // 2 if bidirectional else size,
            layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
        )

    def forward(
        self, embedded: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Embeddings (B, S, E), mask (B, S) -> outputs (B, S, D), final states (B, layers, D).

        Padding follows the tokens and has no effect: the backward direction starts at each
        sentence's last token, final states are those at its ends, and outputs at padding are 0.
        Torch raises `RuntimeError` for a source without tokens.
        """
        if mask is None:
            outputs, final = run_recurrent_network(self.network, embedded)  # (B, S, D)
        else:
            # Sorted here: torch's own sorting reads the order back from the GPU.
            lengths, order = mask.sum(dim=1).cpu().sort(descending=True, stable=True)  # (B,)
            there, back = (
                each.to(embedded.device, non_blocking=True) for each in (order, order.argsort())
            )  # (B,) each
            packed: Any = pack_padded_sequence(
                embedded.index_select(0, there), lengths, batch_first=True
            )
            packed_outputs, final = run_recurrent_network(self.network, packed)
            outputs, _ = pad_packed_sequence(
                packed_outputs, batch_first=True, total_length=embedded.shape[1]
            )  # (B, S, D)
            outputs = outputs.index_select(0, back)
            final = tuple(each.index_select(1, back) for each in final)
        return outputs, tuple(self._by_source(each) for each in final)

    def _by_source(self, state: Tensor) -> Tensor:
        """(layers * directions, B, D / directions) -> (B, layers, D)."""
        by_direction = state.view(
            self.network.num_layers, -1, *state.shape[1:]
        )  # (layers, directions, B, D / directions)
        return by_direction.permute(2, 0, 1, 3).flatten(start_dim=2)  # (B, layers, D)


def reverse_tokens(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the tokens (B, S) of each row; padding stays at the end."""
    if mask is None:
        return tokens.flip(1)  # (B, S)
    mask = mask.to(tokens.device, non_blocking=True)
    lengths = mask.sum(dim=1, keepdim=True)  # (B, 1)
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)  # (B, S)
    return tokens.gather(1, torch.where(mask, lengths - 1 - positions, positions))  # (B, S)
