"""Bahdanau's model: bidirectional encoder, additive attention, deep output.

Bahdanau et al. 2014, *Neural Machine Translation by Jointly Learning to Align and Translate*.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from captioner import cpu
from captioner.attention import AdditiveScore, Attention, Memory
from captioner.devices import at_least_float32
from captioner.schema import SIZE
from captioner.translate.model import TeacherForced, TranslationModel, stack_steps
from captioner.translate.recurrent import AttentionSize, FedCell, RecurrentConfig, RecurrentEncoder


class BahdanauConfig(RecurrentConfig):
    """Sizes and options of a `Bahdanau` model.

    The paper has E 620, H and A 1000, an output layer of 500 and no dropout.
    """

    hidden_size: int = Field(
        512, ge=1, le=SIZE, description="H, of the decoder's GRU and of each direction's"
    )
    attention_size: AttentionSize = 512
    output_size: int = Field(512, ge=1, le=SIZE, description="of the maxout layer")
    output_state: Literal["previous", "new"] = Field(
        "previous",
        description="the decoder's state in the output layer: s_(i-1), as appendix A.2.2 has it, "
        "or s_i, as equation 4 has it",
    )

    @property
    def output_layer_size(self) -> int:
        """The size of the maxout layer."""
        return self.output_size


class BahdanauState(NamedTuple):
    """memory: the source annotations. hidden: (B, K, H)."""

    memory: Memory
    hidden: Tensor


class Bahdanau(TranslationModel):
    """RNNsearch: attends to all annotations with its previous state before every word.

    Follows appendix A of the paper, except that torch's GRU applies the reset gate after the matrix
    U instead of before it, and that the output layer has a bias.
    """

    def __init__(self, config: BahdanauConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, output = config.embedding_size, config.hidden_size, config.output_size
        self.embeddings = config.embeddings(source_size, target_size)
        self.encoder = RecurrentEncoder("gru", embedding, 2 * hidden, bidirectional=True)
        self.attention = Attention(
            AdditiveScore(hidden, 2 * hidden, config.attention_size, bias=False)
        )
        self.initial = nn.Linear(hidden, hidden, bias=False)
        self.cell = FedCell("gru", embedding, 2 * hidden, hidden)
        self.output_word = cpu.Linear(embedding, 2 * output)
        self.output_hidden = cpu.Linear(hidden, 2 * output, bias=False)
        self.output_context = cpu.Linear(2 * hidden, 2 * output, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Source tokens (B, S) and mask (B, S) -> annotations (B, S, 2H). Equation 7."""
        annotations, _ = self.encoder(self.embeddings.source(source), mask)  # (B, S, 2H)
        return self.attention.remember(self.dropout(annotations), mask)

    def start(self, memory: Memory) -> BahdanauState:
        """s_0 = tanh(W_s h_1), of the backward state at the first word. Appendix A.2.2."""
        backward = memory.values[:, :1, self.config.hidden_size :]  # (B, 1, H)
        return BahdanauState(memory, at_least_float32(torch.tanh(self.initial(backward))))

    def run(self, tokens: Tensor, state: BahdanauState) -> tuple[TeacherForced, BahdanauState]:
        """See `TranslationModel.run`; only the GRU and its attention run step by step."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        projected = self.cell.project_input(embedded)  # (B, K, T, 3H)
        states, contexts, weights = [state.hidden], [], []
        for gates in projected.unbind(dim=2):  # (B, K, 3H)
            attended = self.attention(states[-1], state.memory)
            states.append(self.cell(gates, attended.context, (states[-1],))[0])  # (B, K, H)
            contexts.append(attended.context)
            weights.append(attended.weights)
        read = states[:-1] if self.config.output_state == "previous" else states[1:]
        logits = self._output_logits(embedded, stack_steps(read), stack_steps(contexts))
        outputs = TeacherForced(logits, stack_steps(weights))
        return outputs, state._replace(hidden=states[-1])

    def _output_logits(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Embeddings (..., E), states (..., H), contexts (..., 2H) -> logits (..., V).

        Appendix A.2.2: maxout over pairs of U s + V E y + C c.
        """
        pairs = self.output_word(embedded) + self.output_hidden(hidden)
        pairs = pairs + self.output_context(context)  # (..., 2 * output size)
        largest = pairs.unflatten(-1, (-1, 2)).amax(dim=-1)  # (..., output size)
        return self.embeddings.logits(self.dropout(largest))
