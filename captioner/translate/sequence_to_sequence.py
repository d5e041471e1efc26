"""Sequence to sequence without attention: the decoder gets only the encoder's last state.

Sutskever et al. 2014, *Sequence to Sequence Learning with Neural Networks*; Cho et al. 2014.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from captioner.attention import Memory
from captioner.decoding import TeacherForced
from captioner.translate.recurrent import (
    Cell,
    DecoderState,
    Layers,
    RecurrentConfig,
    RecurrentEncoder,
    RecurrentModel,
    RecurrentStack,
    SourceMemory,
)


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
    """Encoder and decoder with the encoder's last state between them.

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
        """See `TranslationModel.run`; one run of the network for all steps."""
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
