"""Sequence to sequence without attention: the decoder gets only the encoder's last state.

Sutskever et al. 2014, *Sequence to Sequence Learning with Neural Networks*; Cho et al. 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from captioner.attention import Memory
from captioner.decoding import Step
from captioner.field_checks import check_choice, check_probabilities, check_sizes
from captioner.translate.cells import RecurrentStack
from captioner.translate.checks import CELLS, check_tie
from captioner.translate.embeddings import Embeddings
from captioner.translate.model import TeacherForced, TranslationModel
from captioner.translate.recurrent_encoder import RecurrentEncoder, reverse_tokens
from captioner.translate.source_memory import RecurrentState, SourceMemory


@dataclass(frozen=True)
class SequenceToSequenceConfig:
    """Sizes and options of a `SequenceToSequence`.

    cell: `lstm` (Sutskever et al. 2014) or `gru` (Cho et al. 2014).
    embedding_size: E. hidden_size: H. layers: of the encoder, and of the decoder.
    reverse_source: read the source backwards, which brings its first words near the first ones of
        the translation (Sutskever et al. 2014, section 3.3).
    tie_embeddings: `none`, `target` or `all`; see `captioner.translate.embeddings`.
    scale_embeddings: multiply embeddings by sqrt(E), of use where they are tied; see there.
    dropout: probability, on embeddings, between layers and before the output layer.

    Raises `UserError` for values out of range.
    """

    cell: str = "lstm"
    embedding_size: int = 512
    hidden_size: int = 512
    layers: int = 2
    reverse_source: bool = True
    tie_embeddings: str = "none"
    scale_embeddings: bool = False
    dropout: float = 0.3

    def __post_init__(self) -> None:
        model = "sequence_to_sequence"
        check_choice(model, self, "cell", CELLS)
        check_sizes(model, self, "embedding_size", "hidden_size", "layers")
        check_probabilities(model, self, "dropout")
        check_tie(model, self, self.hidden_size)


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
        self.embeddings = Embeddings.of(config, source_size, target_size, hidden)
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

    def step(self, tokens: Tensor, state: SequenceToSequenceState) -> Step:
        """Last tokens (B, K) -> logits (B, K, V), state, weights (B, K, 1)."""
        outputs, state = self._run(tokens.unsqueeze(-1), state)  # T = 1
        return Step(outputs.logits.squeeze(2), state, outputs.weights.squeeze(2))

    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """See `TranslationModel.forward`; one run of the network for all steps."""
        outputs, _ = self._run(tokens, self.start_rows(memory, tokens))
        return outputs

    def _run(
        self, tokens: Tensor, state: SequenceToSequenceState
    ) -> tuple[TeacherForced, SequenceToSequenceState]:
        """Tokens (B, K, T) -> outputs and the next state."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        hidden, recurrent = self.decoder(embedded, state.recurrent)  # (B, K, T, H)
        logits = self.embeddings.logits(self.dropout(hidden))  # (B, K, T, V)
        weights = logits.new_ones(*tokens.shape, 1)  # (B, K, T, 1)
        return TeacherForced(logits, weights), state._replace(recurrent=recurrent)
