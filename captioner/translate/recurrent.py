"""Parts of the recurrent translation models, and the model without attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from typing_extensions import Self

from captioner import cpu
from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.decoding.protocol import TeacherForced
from captioner.schema import Config, Fraction, Size
from captioner.translate.model import Embeddings, Tie, TranslationModel

Cell = Annotated[Literal["lstm", "gru"], Field(description="kind of recurrent cell")]
AttentionSize = Annotated[Size, Field(description="A, of the additive score")]
Layers = Annotated[int, Field(ge=1, le=1_000, description="of the encoder, and of the decoder")]


class RecurrentConfig(Config):
    """Sizes and options of a recurrent model."""

    embedding_size: Size = Field(512, description="E, of a token's embedding")
    hidden_size: Size = Field(512, description="H, of every recurrent layer")
    tie_embeddings: Tie = "none"
    scale_embeddings: bool = Field(
        False, description="multiply embeddings by sqrt(E), of use where they are tied"
    )
    dropout: Fraction = Field(
        0.3, description="on embeddings, between layers and before the output layer"
    )

    @property
    def output_layer_size(self) -> int:
        """The size of the vectors that the output layer reads."""
        return self.hidden_size

    @model_validator(mode="after")
    def _check_tie(self) -> Self:
        size = self.output_layer_size
        if self.tie_embeddings != "none" and self.embedding_size != size:
            raise ValueError(
                f"tie_embeddings {self.tie_embeddings!r} needs an embedding_size of {size}, what "
                f"the output layer reads, not {self.embedding_size}"
            )
        return self


class RecurrentModel(TranslationModel):
    """A translation model with the embeddings and the dropout of its config."""

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(
            source_size,
            target_size,
            config.embedding_size,
            config.output_layer_size,
            config.tie_embeddings,
            config.scale_embeddings,
            config.dropout,
        )
        self.dropout = nn.Dropout(config.dropout)


RecurrentState = tuple[Tensor, ...]
"""State of a recurrent network: (hidden,) of a GRU, (hidden, cell) of an LSTM."""


class DecoderState(NamedTuple):
    """The source's memory, and the states of one network, or of each layer."""

    memory: Memory
    recurrent: Any


@dataclass(frozen=True, eq=False)
class SourceMemory(Memory):
    """A memory with the final states of the encoder.

    final: (B, layers, H) each.
    """

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
        self.network = (nn.GRU if kind == "gru" else nn.LSTM)(
            input_size,
            hidden_size,
            layers,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,
            bidirectional=bidirectional,
        )

    def _run(self, inputs: Any, state: RecurrentState | None = None) -> tuple[Any, RecurrentState]:
        """A tensor or `PackedSequence`, states (layers, B, H) -> outputs and states.

        Autocast casts cuDNN's recurrent networks to float16, whatever its own type is: without
        loss scaling their gradients vanish. oneDNN has no LSTM in bfloat16 for CPUs without
        AVX-512, and fails.
        """
        weight = next(self.network.parameters())
        before: Any = None if state is None else tuple(each.to(weight.dtype) for each in state)
        if before is not None and isinstance(self.network, nn.GRU):
            (before,) = before
        with torch.autocast(weight.device.type, enabled=False):
            outputs, after = self.network(inputs.to(weight.dtype), before)
        return outputs, after if isinstance(after, tuple) else (after,)


class RecurrentStack(RecurrentNetwork):
    """The layers of a decoder, over whole sequences or single steps."""

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Inputs (B, K, T, I) and states (B, K, layers, H) -> outputs (B, K, T, H), states."""
        rows = inputs.shape[:2]
        before = tuple(
            each.flatten(end_dim=1).transpose(0, 1).contiguous() for each in state
        )  # (layers, B * K, H)
        outputs, after = self._run(inputs.flatten(end_dim=1), before)  # (B * K, T, H)
        states = tuple(each.transpose(0, 1).reshape(*rows, len(each), -1) for each in after)
        return outputs.view(*inputs.shape[:3], -1), states  # (B, K, T, H), (B, K, layers, H) each


class RecurrentEncoder(RecurrentNetwork):
    """The layers of an encoder; D is H, or 2H in both directions, the forward half first."""

    def forward(
        self, embedded: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Embeddings (B, S, E), mask (B, S) -> outputs (B, S, D), final states (B, layers, D).

        Padding follows the tokens and has no effect: the backward direction starts at each
        sentence's last token, final states are those at its ends, and outputs at padding are 0.
        Torch raises `RuntimeError` for a source without tokens.
        """
        if mask is None:
            outputs, final = self._run(embedded)  # (B, S, D)
        else:
            # Sorted here: torch's own sorting reads the order back from the GPU.
            lengths, order = mask.sum(dim=1).cpu().sort(descending=True, stable=True)  # (B,)
            there, back = (
                each.to(embedded.device, non_blocking=True) for each in (order, order.argsort())
            )  # (B,) each
            packed: Any = pack_padded_sequence(
                embedded.index_select(0, there), lengths, batch_first=True
            )
            outputs, final = self._run(packed)
            outputs, _ = pad_packed_sequence(
                outputs, batch_first=True, total_length=embedded.shape[1]
            )  # (B, S, D)
            outputs = outputs.index_select(0, back)
            final = tuple(each.index_select(1, back) for each in final)
        return outputs, tuple(self._by_source(each) for each in final)

    def _by_source(self, state: Tensor) -> Tensor:
        """(layers * directions, B, D / directions) -> (B, layers, D)."""
        by_direction = state.view(self.network.num_layers, -1, *state.shape[1:])
        return by_direction.permute(2, 0, 1, 3).flatten(start_dim=2)  # (B, layers, D)


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


class SequenceToSequenceConfig(RecurrentConfig):
    """Sizes and options of a `SequenceToSequence`.

    Sutskever et al. 2014 have LSTMs and a reversed source; Cho et al. 2014 have GRUs.
    """

    cell: Cell = "lstm"
    layers: Layers = 2
    reverse_source: bool = Field(
        True,
        description="read the source backwards, which brings its first words near the "
        "translation's (Sutskever et al. 2014, section 3.3)",
    )


class SequenceToSequence(RecurrentModel):
    """Encoder and decoder without attention; the encoder's last state is all that passes.

    Sutskever et al. 2014, *Sequence to Sequence Learning with Neural Networks*; Cho et al. 2014.

    The memory has length L = 1, the last state, so that every attention weight is 1. The recurrent
    state is (B, K, layers, H) each.
    """

    def __init__(
        self, config: SequenceToSequenceConfig, source_size: int, target_size: int
    ) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        sizes = config.embedding_size, config.hidden_size, config.layers
        self.encoder = RecurrentEncoder(config.cell, *sizes, config.dropout)
        self.decoder = RecurrentStack(config.cell, *sizes, config.dropout)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the last state, a memory of length 1."""
        if self.config.reverse_source:
            source = reverse_tokens(source, mask)
        _, final = self.encoder(self.embeddings.source(source), mask)  # (B, layers, H) each
        last = final[0][:, -1:]  # (B, 1, H)
        return SourceMemory(last, last, final=final)

    def start(self, memory: Memory) -> DecoderState:
        """The decoder starts from the encoder's final states."""
        assert isinstance(memory, SourceMemory)
        return DecoderState(memory, tuple(each.unsqueeze(1) for each in memory.final))

    def run(self, tokens: Tensor, state: DecoderState) -> tuple[TeacherForced, DecoderState]:
        """See `SequenceDecoder.run`; one run of the network for all steps."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        hidden, recurrent = self.decoder(embedded, state.recurrent)  # (B, K, T, H)
        logits = self.embeddings.logits(self.dropout(hidden))  # (B, K, T, V)
        weights = logits.new_ones(*tokens.shape, 1)  # (B, K, T, 1)
        return TeacherForced(logits, weights), state._replace(recurrent=recurrent)


def reverse_tokens(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the tokens (B, S) of each row; padding stays at the end."""
    if mask is None:
        return tokens.flip(1)  # (B, S)
    mask = mask.to(tokens.device, non_blocking=True)
    lengths = mask.sum(dim=1, keepdim=True)  # (B, 1)
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)  # (B, S)
    return tokens.gather(1, torch.where(mask, lengths - 1 - positions, positions))  # (B, S)
