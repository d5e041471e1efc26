"""GNMT: deep LSTM stacks with residual connections; attention is fed to all decoder layers.

Wu et al. 2016, *Google's Neural Machine Translation System*, sections 3.1 and 3.2. The search's
penalties are in `captioner.decoding`.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.attention.scores import AdditiveScore
from captioner.decoding.protocol import TeacherForced
from captioner.translate.recurrent import (
    AttentionSize,
    DecoderState,
    FedCell,
    RecurrentConfig,
    RecurrentEncoder,
    RecurrentModel,
    RecurrentStack,
    SourceMemory,
)


class GNMTConfig(RecurrentConfig):
    """Sizes and options of a `GNMT` model; the paper has sizes of 1024 and 8 layers."""

    attention_size: AttentionSize = 512
    layers: int = Field(
        4,
        ge=2,
        le=100,
        description="of the encoder, whose bottom one reads in both directions, and of the decoder",
    )
    residual_from: int = Field(
        3,
        ge=3,
        le=100,
        description="lowest layer, counted from 1, whose input is added to its output; with fewer "
        "layers none is",
    )


class GNMT(RecurrentModel):
    """Stacked LSTMs; the bottom decoder layer attends, and all layers are fed its context.

    The bottom layer's output of the previous step is the query (section 3, equation 4:
    a_i = AttentionFunction(y_(i-1), x)), so that in training only this layer runs step by step.
    Each decoder layer starts from the final state of the encoder layer of the same number, the
    bottom one from the backward direction; the paper does not specify the initial states.

    The recurrent state has those of each layer: (B, K, H) of the bottom one, (B, K, 1, H) of the
    others.
    """

    def __init__(self, config: GNMTConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        embedding, hidden = config.embedding_size, config.hidden_size
        self.bottom_encoder = RecurrentEncoder("lstm", embedding, hidden, bidirectional=True)
        self.encoders = nn.ModuleList(
            RecurrentEncoder("lstm", hidden if layer > 2 else 2 * hidden, hidden)
            for layer in range(2, config.layers + 1)
        )
        self.attention = Attention(AdditiveScore(hidden, hidden, config.attention_size))
        self.bottom_decoder = FedCell("lstm", embedding, hidden, hidden)
        self.decoders = nn.ModuleList(
            RecurrentStack("lstm", 2 * hidden, hidden) for _ in range(2, config.layers + 1)
        )

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the top layer's outputs (B, S, H).

        The final states are (B, layers, H).
        """
        outputs, final = self.bottom_encoder(self.embeddings.source(source), mask)  # (B, S, 2H)
        finals = [tuple(each[:, :, self.config.hidden_size :] for each in final)]  # (B, 1, H)
        for layer, encoder in enumerate(self.encoders, start=2):
            above, final = encoder(self.dropout(outputs), mask)  # (B, S, H)
            outputs = self._add_residual(layer, above, outputs)
            finals.append(final)
        hidden, cell = (torch.cat(each, dim=1) for each in zip(*finals, strict=True))
        memory = self.attention.remember(outputs, mask)
        return SourceMemory(memory.values, memory.keys, memory.mask, (hidden, cell))

    def start(self, memory: Memory) -> DecoderState:
        """Each layer starts from the final state of the encoder layer of the same number."""
        assert isinstance(memory, SourceMemory)
        bottom = tuple(each[:, :1] for each in memory.final)  # (B, 1, H)
        upper = [
            tuple(each[:, layer, None, None] for each in memory.final)  # (B, 1, 1, H)
            for layer in range(1, self.config.layers)
        ]
        return DecoderState(memory, (bottom, *upper))

    def run(self, tokens: Tensor, state: DecoderState) -> tuple[TeacherForced, DecoderState]:
        """See `SequenceDecoder.run`; only the bottom layer runs step by step."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        (_, *bottom), context, weights = self.bottom_decoder.attend(
            self.attention, embedded, state.recurrent[0], state.memory
        )
        outputs = torch.stack([hidden for hidden, _ in bottom], dim=2)  # (B, K, T, H)
        states = [bottom[-1]]
        for layer, decoder in enumerate(self.decoders, start=2):
            fed = torch.cat([self.dropout(outputs), context], dim=-1)  # (B, K, T, 2H)
            above, state_above = decoder(fed, state.recurrent[layer - 1])  # (B, K, T, H)
            outputs = self._add_residual(layer, above, outputs)
            states.append(state_above)
        logits = self.embeddings.logits(self.dropout(outputs))  # (B, K, T, V)
        return TeacherForced(logits, weights), state._replace(recurrent=tuple(states))

    def _add_residual(self, layer: int, outputs: Tensor, inputs: Tensor) -> Tensor:
        """Equation 6: from `residual_from` on, add the inputs of a layer to its outputs."""
        return outputs + inputs if layer >= self.config.residual_from else outputs
