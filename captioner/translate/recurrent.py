"""What the recurrent translation models share: their base, networks and cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import Self

from captioner import cpu
from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.schema import Config, Fraction, Size
from captioner.translate.model import Embeddings, Tie, TranslationModel


class RecurrentConfig(Config):
    """Sizes and options of a recurrent model."""

    embedding_size: Size = Field(512, description="E, of a token's embedding")
    hidden_size: Size = Field(512, description="H, of every recurrent layer")
    tie_embeddings: Tie = "none"
    scale_embeddings: bool = Field(False, description="by sqrt(E), of use where they are tied")
    dropout: Fraction = Field(0.3, description="on embeddings, between layers, before the output")


class RecurrentModel(TranslationModel):
    """A translation model with the embeddings and the dropout of its config.

    The state of its decoder is a tuple of the source's memory and of recurrent states.
    source_size, target_size: V of each side.
    output_size: of the vectors that the output layer reads; 0 for H.
    """

    def __init__(
        self, config: RecurrentConfig, source_size: int, target_size: int, output_size: int = 0
    ) -> None:
        super().__init__()
        self.config: Any = config
        sizes = source_size, target_size, config.embedding_size, output_size or config.hidden_size
        options = config.tie_embeddings, config.scale_embeddings, config.dropout
        self.embeddings = Embeddings(*sizes, *options)
        self.dropout = nn.Dropout(config.dropout)


RecurrentState = tuple[Tensor, ...]
"""State of a recurrent network: (hidden,) of a GRU, (hidden, cell) of an LSTM."""


@dataclass(frozen=True, eq=False)
class SourceMemory(Memory):
    """A memory with the final states of the encoder, (B, layers, H) each."""

    final: RecurrentState = ()

    def select(self, sources: Tensor) -> Self:
        """Select sources (B',), indices into B."""
        final = tuple(each.index_select(0, sources) for each in self.final)
        return replace(super().select(sources), final=final)


class RecurrentNetwork(nn.Module):
    """torch's GRU or LSTM of several layers, run in the type of its weights.

    kind: `gru` or `lstm`. dropout: probability between layers.
    """

    def __init__(
        self,
        kind: str,
        input_size: int,
        hidden_size: int,
        layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        make, dropout = nn.GRU if kind == "gru" else nn.LSTM, dropout if layers > 1 else 0.0
        options = {"batch_first": True, "dropout": dropout, "bidirectional": bidirectional}
        self.network = make(input_size, hidden_size, layers, **options)

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Decode: inputs (B, K, T, I), states (B, K, layers, H) -> outputs (B, K, T, H), states."""
        rows = inputs.shape[:2]
        before = tuple(each.flatten(end_dim=1).transpose(0, 1).contiguous() for each in state)
        outputs, after = self._run(inputs.flatten(end_dim=1), before)  # (B * K, T, H)
        states = tuple(each.transpose(0, 1).reshape(*rows, len(each), -1) for each in after)
        return outputs.view(*inputs.shape[:3], -1), states  # (B, K, T, H), (B, K, layers, H) each

    def encode(self, embedded: Tensor, mask: Tensor | None = None) -> tuple[Tensor, RecurrentState]:
        """Embeddings (B, S, E), mask (B, S) -> outputs (B, S, D), final states (B, layers, D).

        D is H, or 2H in both directions, the forward half first. Padding follows the tokens and has
        no effect: each direction starts and ends at the tokens, and outputs at padding are 0. Torch
        raises `RuntimeError` for a source without tokens.
        """
        if mask is None:
            mask = torch.ones(embedded.shape[:2], dtype=torch.bool)
        # Sorted here: torch's own sorting reads the order back from the GPU.
        lengths, order = mask.sum(dim=1).cpu().sort(descending=True, stable=True)  # (B,)
        order = order.to(embedded.device, non_blocking=True)
        embedded, back = embedded.index_select(0, order), order.argsort()
        outputs, final = self._run(pack_padded_sequence(embedded, lengths, batch_first=True))
        outputs, _ = pad_packed_sequence(outputs, True, total_length=embedded.shape[1])
        final = tuple(each.index_select(1, back) for each in final)
        directions = (self.network.num_layers, -1, *final[0].shape[1:])
        by_source = (each.view(directions).permute(2, 0, 1, 3) for each in final)
        states = tuple(each.flatten(start_dim=2) for each in by_source)
        return outputs.index_select(0, back), states  # (B, S, D), (B, layers, D) each

    def _run(self, inputs: Any, state: RecurrentState | None = None) -> tuple[Any, RecurrentState]:
        """A tensor or `PackedSequence`, states (layers, B, H) -> outputs and states.

        Autocast casts cuDNN's recurrent networks to float16, whatever its own type is: their
        gradients vanish. oneDNN has no LSTM in bfloat16 for CPUs without AVX-512, and fails.
        """
        weight = next(self.network.parameters())
        before: Any = state and tuple(each.to(weight.dtype) for each in state)
        if before and isinstance(self.network, nn.GRU):
            (before,) = before
        with torch.autocast(weight.device.type, enabled=False):
            outputs, after = self.network(inputs.to(weight.dtype), before)
        return outputs, after if isinstance(after, tuple) else (after,)


class FedCell(nn.Module):
    """A GRU or LSTM cell with a precomputed input projection and a recurrent context input.

    The known inputs (embeddings) of all steps are projected in one product, contexts step by step.

    kind: `gru` or `lstm`. known_size: of the known input. fed_size: of the context input, or 0.
    """

    def __init__(self, kind: str, known_size: int, fed_size: int, hidden_size: int) -> None:
        super().__init__()
        gates = 3 if kind == "gru" else 4
        self.kind = kind
        self.known = cpu.Linear(known_size, gates * hidden_size)
        self.fed = cpu.Linear(fed_size, gates * hidden_size, bias=False) if fed_size else None
        self.hidden = cpu.Linear(hidden_size, gates * hidden_size)
        with torch.no_grad():
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)
            if kind == "lstm":
                self.known.bias[hidden_size : 2 * hidden_size] = 1.0  # An open forget gate.

    def project_input(self, known: Tensor) -> Tensor:
        """Known inputs (..., I) -> their part of the gates (..., 3H or 4H), in torch's order."""
        return self.known(known)  # type: ignore[no-any-return]

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

    def attend(
        self, attention: Attention, known: Tensor, state: RecurrentState, memory: Memory
    ) -> tuple[list[RecurrentState], Tensor, Tensor]:
        """Run step by step, fed with what the hidden state before each step attends to.

        Known inputs (B, K, T, I), states (B, K, H) -> these and the T next states, contexts
        (B, K, T, F) and weights (B, K, T, S).
        """
        states, contexts, weights = [state], [], []
        for gates in self.project_input(known).unbind(dim=2):  # (B, K, gates)
            attended = attention(states[-1][0], memory)
            states.append(self(gates, attended.context, states[-1]))
            contexts.append(attended.context)
            weights.append(attended.weights)
        return states, torch.stack(contexts, dim=2), torch.stack(weights, dim=2)


def reverse_tokens(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the tokens (B, S) of each row; padding stays at the end."""
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)  # (B, S)
    lengths = positions[:, -1:] + 1 if mask is None else mask.sum(dim=1, keepdim=True)  # (B, 1)
    last = lengths.to(tokens.device, non_blocking=True) - 1
    return tokens.gather(1, (last - positions) % tokens.shape[1])  # (B, S)
