"""The model that brought attention: bidirectional encoder, additive attention, deep output.

Bahdanau et al. 2014, *Neural Machine Translation by Jointly Learning to Align and Translate*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention import AdditiveScore, Attention, Memory
from captioner.decoding import Step
from captioner.field_checks import check_choice, check_probabilities, check_sizes
from captioner.translate.cells import FedCell
from captioner.translate.checks import check_tie
from captioner.translate.embeddings import Embeddings
from captioner.translate.encoders import RecurrentEncoder
from captioner.translate.model import TeacherForced, TranslationModel, stacked


@dataclass(frozen=True)
class BahdanauConfig:
    """Sizes and options of a `Bahdanau` model.

    embedding_size: E; 620 in the paper. hidden_size: H of the decoder's GRU, and of each direction
    of the encoder's; 1000 in the paper. attention_size: A of the additive score; 1000.
    output_size: of the maxout layer; 500.
    output_state: the decoder's state in the output layer: `previous`, s_(i-1), as appendix A.2.2
        has it, or `new`, s_i, as equation 4 has it.
    tie_embeddings: `none`, `target` or `all`; see `captioner.translate.embeddings`.
    scale_embeddings: multiply embeddings by sqrt(E), of use where they are tied; see there.
    dropout: probability, on embeddings, annotations and before the output layer; 0 in the paper.

    Raises `UserError` for values out of range.
    """

    embedding_size: int = 512
    hidden_size: int = 512
    attention_size: int = 512
    output_size: int = 512
    output_state: str = "previous"
    tie_embeddings: str = "none"
    scale_embeddings: bool = False
    dropout: float = 0.3

    def __post_init__(self) -> None:
        model = "bahdanau"
        check_sizes(model, self, "embedding_size", "hidden_size", "attention_size", "output_size")
        check_choice(model, self, "output_state", ("previous", "new"))
        check_probabilities(model, self, "dropout")
        check_tie(model, self, self.output_size)


class BahdanauState(NamedTuple):
    """memory: annotations of the source. hidden: (B, K, H)."""

    memory: Memory
    hidden: Tensor


class Bahdanau(TranslationModel):
    """RNNsearch: looks at all annotations, with its previous state, before every word.

    The GRUs are torch's, whose reset gate acts behind the matrix U s where the paper's acts before
    it, on s; and the output layer has a bias. All else is appendix A of the paper.
    """

    def __init__(self, config: BahdanauConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, said = config.embedding_size, config.hidden_size, config.output_size
        self.embeddings = Embeddings.of(config, source_size, target_size, said)
        self.encoder = RecurrentEncoder("gru", embedding, 2 * hidden, bidirectional=True)
        self.attention = Attention(
            AdditiveScore(hidden, 2 * hidden, config.attention_size, bias=False)
        )
        self.initial = nn.Linear(hidden, hidden, bias=False)
        self.cell = FedCell("gru", embedding, 2 * hidden, hidden)
        self.output_word = nn.Linear(embedding, 2 * said)
        self.output_hidden = nn.Linear(hidden, 2 * said, bias=False)
        self.output_context = nn.Linear(2 * hidden, 2 * said, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Source tokens (B, S) and mask (B, S) -> annotations (B, S, 2H). Equation 7."""
        annotations, _ = self.encoder(self.embeddings.source(source), mask)  # (B, S, 2H)
        return self.attention.remember(self.dropout(annotations), mask)

    def start(self, memory: Memory) -> BahdanauState:
        """s_0 = tanh(W_s h_1), of the backward state at the first word. Appendix A.2.2."""
        backward = memory.values[:, :1, self.config.hidden_size :]  # (B, 1, H)
        return BahdanauState(memory, torch.tanh(self.initial(backward)))

    def step(self, tokens: Tensor, state: BahdanauState) -> Step:
        """Last tokens (B, K) -> logits (B, K, V), state, weights (B, K, S)."""
        embedded = self.embeddings.target(tokens)  # (B, K, E)
        context, weights, after = self._recur(self.cell.ahead(embedded), state)
        seen = state if self.config.output_state == "previous" else after
        return Step(self._say(embedded, seen.hidden, context), after, weights)

    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """See `TranslationModel.forward`: only the GRU and its looks go step by step."""
        state = self.start_rows(memory, tokens)
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        ahead = self.cell.ahead(embedded)  # (B, K, T, 3H)
        states, contexts, looks = [state.hidden], [], []
        for now in ahead.unbind(dim=2):  # (B, K, 3H)
            context, weights, state = self._recur(now, state)
            states.append(state.hidden)
            contexts.append(context)
            looks.append(weights)
        seen = states[:-1] if self.config.output_state == "previous" else states[1:]
        logits = self._say(embedded, stacked(seen), stacked(contexts))  # (B, K, T, V)
        return TeacherForced(logits, stacked(looks))

    def _recur(self, ahead: Tensor, state: BahdanauState) -> tuple[Tensor, Tensor, BahdanauState]:
        """The gates of the last words (B, K, 3H) -> context (B, K, 2H), weights, new state."""
        attended = self.attention(state.hidden, state.memory)
        (hidden,) = self.cell(ahead, attended.context, (state.hidden,))  # (B, K, H)
        return attended.context, attended.weights, state._replace(hidden=hidden)

    def _say(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Embeddings (..., E), states (..., H), contexts (..., 2H) -> logits (..., V).

        Appendix A.2.2: t is the larger of each two neighbours of U s + V E y + C c.
        """
        before = self.output_word(embedded) + self.output_hidden(hidden)
        before = before + self.output_context(context)  # (..., 2 * output size)
        largest = before.unflatten(-1, (-1, 2)).amax(dim=-1)  # (..., output size)
        return self.embeddings.logits(self.dropout(largest))
