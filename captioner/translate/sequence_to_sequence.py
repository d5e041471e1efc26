"""Sequence to sequence without attention: the decoder gets only the encoder's last state.

Sutskever et al. 2014, *Sequence to Sequence Learning with Neural Networks*; Cho et al. 2014.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field
from torch import Tensor, nn

from captioner.attention import Memory
from captioner.translate.model import TeacherForced, TranslationModel
from captioner.translate.recurrent import (
    Cell,
    Layers,
    RecurrentConfig,
    RecurrentEncoder,
    RecurrentStack,
    RecurrentState,
    SourceMemory,
    reverse_tokens,
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


class SequenceToSequenceState(NamedTuple):
    """memory: of length 1. recurrent: (B, K, layers, H) each."""

    memory: Memory
    recurrent: RecurrentState


class SequenceToSequence(TranslationModel):
    """Encoder and decoder with the encoder's last state between them.

    The memory has length L = 1, the last state, so that every attention weight is 1.
    """

    def __init__(
        self, config: SequenceToSequenceConfig, source_size: int, target_size: int
    ) -> None:
        super().__init__()
        self.config = config
        embedding, hidden = config.embedding_size, config.hidden_size
        self.embeddings = config.embeddings(source_size, target_size)
        self.encoder = RecurrentEncoder(
            config.cell, embedding, hidden, config.layers, dropout=config.dropout
        )
        self.decoder = RecurrentStack(config.cell, embedding, hidden, config.layers, config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the last state, a memory of length 1."""
        if self.config.reverse_source:
            source = reverse_tokens(source, mask)
        _, final = self.encoder(self.embeddings.source(source), mask)  # (B, layers, H) each
        last = final[0][:, -1:]  # (B, 1, H)
        return SourceMemory(last, last, final=final)

    def start(self, memory: Memory) -> SequenceToSequenceState:
        """The decoder starts from the encoder's final states."""
        assert isinstance(memory, SourceMemory)
        final = tuple(each.unsqueeze(1) for each in memory.final)  # (B, 1, layers, H)
        return SequenceToSequenceState(memory, final)

    def run(
        self, tokens: Tensor, state: SequenceToSequenceState
    ) -> tuple[TeacherForced, SequenceToSequenceState]:
        """See `TranslationModel.run`; one run of the network for all steps."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        hidden, recurrent = self.decoder(embedded, state.recurrent)  # (B, K, T, H)
        logits = self.embeddings.logits(self.dropout(hidden))  # (B, K, T, V)
        weights = logits.new_ones(*tokens.shape, 1)  # (B, K, T, 1)
        return TeacherForced(logits, weights), state._replace(recurrent=recurrent)
