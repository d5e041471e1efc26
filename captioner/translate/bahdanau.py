"""Bahdanau's model: bidirectional encoder, additive attention, deep output.

Bahdanau et al. 2014, *Neural Machine Translation by Jointly Learning to Align and Translate*.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from captioner import cpu
from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.attention.scores import AdditiveScore
from captioner.decoding.protocol import TeacherForced
from captioner.devices import at_least_float32
from captioner.schema import Size
from captioner.translate.recurrent import (
    AttentionSize,
    DecoderState,
    FedCell,
    RecurrentConfig,
    RecurrentEncoder,
    RecurrentModel,
)


class BahdanauConfig(RecurrentConfig):
    """Sizes and options of a `Bahdanau` model.

    The paper has E 620, H and A 1000, an output layer of 500 and no dropout.
    """

    hidden_size: Size = Field(512, description="H, of the decoder's GRU and of each direction's")
    attention_size: AttentionSize = 512
    output_size: Size = Field(512, description="of the maxout layer")
    output_state: Literal["previous", "new"] = Field(
        "previous",
        description="the decoder's state in the output layer: s_(i-1), as appendix A.2.2 has it, "
        "or s_i, as equation 4 has it",
    )

    @property
    def output_layer_size(self) -> int:
        """The size of the maxout layer."""
        return self.output_size


class Bahdanau(RecurrentModel):
    """RNNsearch: attends to all annotations with its previous state before every word.

    Follows appendix A of the paper, except that torch's GRU applies the reset gate after the matrix
    U instead of before it, and that the output layer has a bias.
    """

    def __init__(self, config: BahdanauConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        embedding, hidden, output = config.embedding_size, config.hidden_size, config.output_size
        self.encoder = RecurrentEncoder("gru", embedding, hidden, bidirectional=True)
        self.attention = Attention(
            AdditiveScore(hidden, 2 * hidden, config.attention_size, bias=False)
        )
        self.initial = nn.Linear(hidden, hidden, bias=False)
        self.cell = FedCell("gru", embedding, 2 * hidden, hidden)
        self.output_word = cpu.Linear(embedding, 2 * output)
        self.output_hidden = cpu.Linear(hidden, 2 * output, bias=False)
        self.output_context = cpu.Linear(2 * hidden, 2 * output, bias=False)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Source tokens (B, S) and mask (B, S) -> annotations (B, S, 2H). Equation 7."""
        annotations, _ = self.encoder(self.embeddings.source(source), mask)  # (B, S, 2H)
        return self.attention.remember(self.dropout(annotations), mask)

    def start(self, memory: Memory) -> DecoderState:
        """s_0 = tanh(W_s h_1), of the backward state at the first word. Appendix A.2.2."""
        backward = memory.values[:, :1, self.config.hidden_size :]  # (B, 1, H)
        return DecoderState(memory, (at_least_float32(torch.tanh(self.initial(backward))),))

    def run(self, tokens: Tensor, state: DecoderState) -> tuple[TeacherForced, DecoderState]:
        """See `SequenceDecoder.run`; only the GRU and its attention run step by step."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        states, contexts, weights = self.cell.attend(
            self.attention, embedded, state.recurrent, state.memory
        )
        read = states[:-1] if self.config.output_state == "previous" else states[1:]
        hidden = torch.stack([each for (each,) in read], dim=2)  # (B, K, T, H)
        # Appendix A.2.2: maxout over pairs of U s + V E y + C c.
        pairs = self.output_word(embedded) + self.output_hidden(hidden)
        pairs = pairs + self.output_context(contexts)  # (B, K, T, 2 * output size)
        largest = pairs.unflatten(-1, (-1, 2)).amax(dim=-1)  # (B, K, T, output size)
        logits = self.embeddings.logits(self.dropout(largest))
        return TeacherForced(logits, weights), state._replace(recurrent=states[-1])
