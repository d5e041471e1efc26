"""The writer of captions: an LSTM that looks at the annotation vectors before every word.

Xu et al. 2015, *Show, Attend and Tell*, sections 3.1.2 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.attention import (
    AdditiveScore,
    Attended,
    Attention,
    HardSelection,
    Memory,
    SoftSelection,
)
from captioner.decoding import Step
from captioner.errors import UserError


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and options of a `ShowAttendTellDecoder`.

    embedding_size: size of a word's embedding E y.
    hidden_size: H of the LSTM. attention_size: A of the additive score.
    memory_size: D of an annotation vector; 512 for VGG.
    selection: `soft`, the expected annotation vector, or `hard`, that of one place, drawn in
        training and the likeliest otherwise. The maps are the distribution over places in both.
    gate: `scalar` (section 4.2.1: one beta a step), `vector` (one for each of D) or `none`.
    deep_output: equation 7, L_o(E y + L_h h + L_z z); without it the output layer sees h alone.
    output_tanh: a tanh before L_o.
    dropout: probability, on embeddings, on the initial state and before L_o.
    memory_dropout: probability of blanking a whole channel of a photo's annotation vectors.

    Raises `UserError` for values out of range.
    """

    embedding_size: int = 512
    hidden_size: int = 512
    attention_size: int = 512
    memory_size: int = 512
    selection: str = "soft"
    gate: str = "scalar"
    deep_output: bool = True
    output_tanh: bool = False
    dropout: float = 0.5
    memory_dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("embedding_size", "hidden_size", "attention_size", "memory_size"):
            if getattr(self, name) < 1:
                raise UserError(f"decoder {name} {getattr(self, name)} is not at least 1")
        for name, choices in (
            ("selection", ("soft", "hard")),
            ("gate", ("scalar", "vector", "none")),
        ):
            if getattr(self, name) not in choices:
                raise UserError(
                    f"decoder {name} {getattr(self, name)!r} is not one of {', '.join(choices)}"
                )
        for name in ("dropout", "memory_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"decoder {name} {getattr(self, name)} is not in [0, 1)")


class DecoderState(NamedTuple):
    """What the decoder knows after some words: K rows for each of B sources.

    memory: what is looked at, shared by the K rows. hidden, cell: (B, K, H).
    """

    memory: Memory
    hidden: Tensor
    cell: Tensor


class TeacherForced(NamedTuple):
    """What the decoder says of given captions.

    logits: (B, K, T, V). weights: (B, K, T, L). log_probability: (B, K, T), of the positions drawn
    by hard attention, and entropy: (B, K, T), of what they were drawn from, in nats; None for soft.
    """

    logits: Tensor
    weights: Tensor
    log_probability: Tensor | None
    entropy: Tensor | None


class ShowAttendTellDecoder(nn.Module):
    """The decoder of Show, Attend and Tell; follows `captioner.decoding.Decoder`."""

    def __init__(self, config: DecoderConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, memory = config.embedding_size, config.hidden_size, config.memory_size
        self.attention = Attention(
            AdditiveScore(hidden, memory, config.attention_size),
            SoftSelection() if config.selection == "soft" else HardSelection(),
        )
        # Given its weights, Embedding draws none of its own: they are drawn below, and drawing
        # them here as well makes torch import its compiler when weights are to come from a file.
        self.embedding: nn.Embedding = nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]
            torch.empty(vocabulary_size, embedding), freeze=False
        )
        self.lstm = nn.LSTMCell(embedding + memory, hidden)
        self.initial_hidden = nn.Linear(memory, hidden)
        self.initial_cell = nn.Linear(memory, hidden)
        if config.gate != "none":
            self.gate = nn.Linear(hidden, 1 if config.gate == "scalar" else memory)
        if config.deep_output:
            self.output_hidden = nn.Linear(hidden, embedding)
            self.output_context = nn.Linear(memory, embedding, bias=False)
        self.output = nn.Linear(embedding if config.deep_output else hidden, vocabulary_size)
        self.dropout = nn.Dropout(config.dropout)
        # Words at the scale of annotation vectors (about one), lest the LSTM hear only the photo,
        # and gates that at first remember.
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        nn.init.uniform_(self.output.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.lstm.bias_ih[hidden : 2 * hidden] = 1.0  # The forget gate's.

    def remember(self, annotations: Tensor) -> Memory:
        """Annotation vectors (B, L, D) -> the memory that `start` and `forward` take."""
        if self.training and self.config.memory_dropout > 0:
            kept = functional.dropout(
                annotations.new_ones(annotations.shape[0], 1, annotations.shape[2]),
                self.config.memory_dropout,
            )  # (B, 1, D)
            annotations = annotations * kept
        return self.attention.remember(_as_computed(annotations))

    def start(self, memory: Memory) -> DecoderState:
        """A memory of B sources -> the state before the first word, (B, 1, H).

        Section 3.1.2: c_0 and h_0 are functions of the mean annotation vector.
        """
        mean = memory.values.mean(dim=1, keepdim=True)  # (B, 1, D)
        mean = self.dropout(mean)
        hidden = torch.tanh(self.initial_hidden(mean))  # (B, 1, H)
        cell = torch.tanh(self.initial_cell(mean))  # (B, 1, H)
        return DecoderState(memory, hidden, cell)

    def step(self, tokens: Tensor, state: object) -> Step:
        """Last words (B, K) and the state before them -> `Step` for the words that follow."""
        assert isinstance(state, DecoderState)
        embedded = self.dropout(self.embedding(tokens))  # (B, K, E)
        state, context, attended = self._recur(
            self._word_gates(embedded), state, self._recurrent_weights()
        )
        return Step(self._logits(embedded, state.hidden, context), state, attended.weights)

    def select(self, state: object, rows: Tensor) -> DecoderState:
        """The state of rows (B, K') of each source's K; the memory stays as it is."""
        assert isinstance(state, DecoderState)
        index = rows.unsqueeze(-1).expand(-1, -1, self.config.hidden_size)  # (B, K', H)
        return DecoderState(
            state.memory, state.hidden.gather(1, index), state.cell.gather(1, index)
        )

    def forward(
        self,
        memory: Memory,
        tokens: Tensor,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> TeacherForced:
        """Teacher forcing: the words fed in (B, K, T), `<start>` first -> `TeacherForced`.

        Only what depends on the recurrence runs step by step. The embeddings, their part of the
        LSTM's gates and the output layer are one product each over all T steps.
        generator: what hard attention draws from.
        expected: (B, K) boolean, captions for all of whose words hard attention gives the expected
            value instead of a draw.
        """
        rows, steps = tokens.shape[1:]
        embedded = self.dropout(self.embedding(tokens))  # (B, K, T, E)
        word_gates = self._word_gates(embedded)  # (B, K, T, 4H)
        recurrent_weights = self._recurrent_weights()
        state = self.start(memory)
        if rows > 1:
            state = self.select(state, tokens.new_zeros(tokens.shape[:2]))
        hiddens, contexts, looks = [], [], []
        for time in range(steps):
            state, context, attended = self._recur(
                word_gates[:, :, time], state, recurrent_weights, generator, expected
            )
            hiddens.append(state.hidden)
            contexts.append(context)
            looks.append(attended)
        logits = self._logits(embedded, torch.stack(hiddens, dim=2), torch.stack(contexts, dim=2))
        weights = torch.stack([look.weights for look in looks], dim=2)  # (B, K, T, L)
        if self.config.selection == "soft":
            return TeacherForced(logits, weights, None, None)
        log_probability = torch.stack([look.log_probability for look in looks], dim=2)  # (B, K, T)
        entropy = torch.stack([look.entropy for look in looks], dim=2)  # (B, K, T)
        return TeacherForced(logits, weights, log_probability, entropy)

    def _word_gates(self, embedded: Tensor) -> Tensor:
        """The words' part of the LSTM's gates: (..., E) -> (..., 4H). Equation 1, T E y."""
        weight = self.lstm.weight_ih[:, : self.config.embedding_size]
        return functional.linear(embedded, weight, self.lstm.bias_ih)

    def _recurrent_weights(self) -> tuple[Tensor, Tensor]:
        """The LSTM's weights for the context, (4H, D), and for the state, (4H, H).

        Taken once for all steps: cutting or casting them anew at every step costs more, there
        and in the backward pass, than the products themselves.
        """
        context_weight = self.lstm.weight_ih[:, self.config.embedding_size :]
        return _as_computed(context_weight), _as_computed(self.lstm.weight_hh)

    def _recur(
        self,
        word_gates: Tensor,
        state: DecoderState,
        recurrent_weights: tuple[Tensor, Tensor],
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> tuple[DecoderState, Tensor, Attended]:
        """One step of the recurrence, the same for teacher forcing and for decoding.

        word_gates (B, K, 4H) -> state, gated context (B, K, D), and what was looked at, K queries
        of it. Equations 1 to 3, 4, 5.
        """
        attended: Attended = self.attention(
            state.hidden, state.memory, generator=generator, expected=expected
        )
        context = attended.context  # (B, K, D)
        if self.config.gate != "none":
            context = torch.sigmoid(self.gate(state.hidden)) * context
        context_weight, hidden_weight = recurrent_weights
        gates = (
            word_gates
            + functional.linear(context, context_weight)
            + functional.linear(state.hidden, hidden_weight, self.lstm.bias_hh)
        )  # (B, K, 4H), in torch's order: input, forget, candidate, output
        entry, forget, candidate, exit_ = gates.chunk(4, dim=-1)  # (B, K, H) each
        cell = torch.sigmoid(forget) * state.cell + torch.sigmoid(entry) * torch.tanh(candidate)
        hidden = torch.sigmoid(exit_) * torch.tanh(cell)
        return DecoderState(state.memory, hidden, cell), context, attended

    def _logits(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Embedding (..., E), state (..., H), context (..., D) -> logits (..., V). Equation 7."""
        if self.config.deep_output:
            hidden = embedded + self.output_hidden(self.dropout(hidden))  # (..., E)
            hidden = hidden + self.output_context(context)
        if self.config.output_tanh:
            hidden = torch.tanh(hidden)
        logits: Tensor = self.output(self.dropout(hidden))  # (..., V)
        return logits


def _as_computed(tensor: Tensor) -> Tensor:
    """The tensor in the type that autocast would cast it to at every use; as it is without."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device):
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor
