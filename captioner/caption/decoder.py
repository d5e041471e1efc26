"""The writer of captions: an LSTM that looks at the annotation vectors before every word.

Xu et al. 2015, *Show, Attend and Tell*, sections 3.1.2 and 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
from captioner.attention.products import (
    Linear,
    PackedOnce,
    as_computed,
    forget_packed,
    linear,
    packed,
)
from captioner.caption.recurrence import Looks, Recurrence, Weights
from captioner.caption.standardisation import Standardisation
from captioner.decoding import Step
from captioner.errors import UserError
from captioner.field_checks import check_choice, check_probabilities, check_sizes


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
    standardise: bring annotation vectors to mean 0 and standard deviation 1 first, by those of
        training photos; see `captioner.caption.standardisation`. Not in the paper.
    temperature: what scores are divided by before they become weights; below 1 maps are narrower.
        1 in the paper.

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
    standardise: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        section = "decoder"
        sizes = ("embedding_size", "hidden_size", "attention_size", "memory_size")
        check_sizes(section, self, *sizes)
        check_choice(section, self, "selection", ("soft", "hard"))
        check_choice(section, self, "gate", ("scalar", "vector", "none"))
        check_probabilities(section, self, "dropout", "memory_dropout")
        if not 0 < self.temperature < math.inf:
            raise UserError(f"{section} temperature {self.temperature} is not above 0")


class DecoderState(NamedTuple):
    """What the decoder knows after some words: K rows for each of B sources.

    memory: what is looked at, shared by the K rows. hidden, cell: (B, K, H).
    recurrent: the LSTM's weights (4H, E + D + H), of word, context and state, as one matrix that
        every step of decoding uses; None where all words are given.
    """

    memory: Memory
    hidden: Tensor
    cell: Tensor
    recurrent: Tensor | None = None


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
    """The decoder of Show, Attend and Tell; follows `captioner.decoding.Decoder`.

    fused: run the recurrence as `captioner.caption.recurrence` does, with its gradient written
        out, where the keys of the memory are prepared for it. It is equal within rounding to the
        same equations step by step, which run without it.
    """

    fused: bool = True

    def __init__(self, config: DecoderConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        embedding, hidden, memory = config.embedding_size, config.hidden_size, config.memory_size
        self.attention = Attention(
            AdditiveScore(hidden, memory, config.attention_size, temperature=config.temperature),
            SoftSelection() if config.selection == "soft" else HardSelection(),
        )
        # Given its weights, Embedding draws none of its own: they are drawn below, and drawing
        # them here as well makes torch import its compiler when weights are to come from a file.
        self.embedding: nn.Embedding = nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]
            torch.empty(vocabulary_size, embedding), freeze=False
        )
        self.lstm = nn.LSTMCell(embedding + memory, hidden)
        self.initial_hidden = Linear(memory, hidden)
        self.initial_cell = Linear(memory, hidden)
        if config.gate != "none":
            self.gate = Linear(hidden, 1 if config.gate == "scalar" else memory)
        if config.deep_output:
            self.output_hidden = Linear(hidden, embedding)
            self.output_context = Linear(memory, embedding, bias=False)
        self.output = Linear(embedding if config.deep_output else hidden, vocabulary_size)
        self.dropout = nn.Dropout(config.dropout)
        self.standardisation = Standardisation(memory) if config.standardise else None
        self._packed_once = PackedOnce()
        # Words at the scale of annotation vectors (about one), lest the LSTM hear only the photo,
        # and gates that at first remember.
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        nn.init.uniform_(self.output.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.lstm.bias_ih[hidden : 2 * hidden] = 1.0  # The forget gate's.
        if self.standardisation is not None and not self.lstm.bias_ih.is_meta:
            self.standardisation.reset()

    def remember(self, annotations: Tensor) -> Memory:
        """Annotation vectors (B, L, D) -> the memory that `start` and `forward` take."""
        if self.standardisation is not None:
            annotations = self.standardisation(annotations)
        if self.training and self.config.memory_dropout > 0:
            kept = functional.dropout(
                annotations.new_ones(annotations.shape[0], 1, annotations.shape[2]),
                self.config.memory_dropout,
            )  # (B, 1, D)
            annotations = annotations * kept
        return self.attention.remember(as_computed(annotations))

    def start(self, memory: Memory) -> DecoderState:
        """A memory of B sources -> the state before the first word, (B, 1, H).

        Section 3.1.2: c_0 and h_0 are functions of the mean annotation vector, of those that may be
        attended.
        """
        self._forget_if_training()
        weights = self.lstm.weight_ih, self.lstm.weight_hh
        (recurrent,) = self._packed_once(
            lambda: (packed(as_computed(torch.cat(weights, dim=1))),),
            weights,
            as_computed(weights[0][:0]).dtype,
        )
        return self._initial_state(memory)._replace(recurrent=recurrent)

    def _initial_state(self, memory: Memory) -> DecoderState:
        """What `start` gives, but for the weights."""
        mean = self._drop(_mean(memory))  # (B, 1, D)
        hidden = torch.tanh(self.initial_hidden(mean))  # (B, 1, H)
        cell = torch.tanh(self.initial_cell(mean))  # (B, 1, H)
        return DecoderState(memory, hidden, cell)

    def step(self, tokens: Tensor, state: object) -> Step:
        """Last words (B, K) and the state before them -> `Step` for the words that follow."""
        assert isinstance(state, DecoderState)
        assert state.recurrent is not None
        self._forget_if_training()
        embedded = self._drop(self.embedding(tokens))  # (B, K, E)
        context, attended = self._look(state)
        fed = torch.cat([embedded, context, state.hidden], dim=-1)  # (B, K, E + D + H)
        state = self._after(state, linear(fed, state.recurrent, self._bias()))
        logits = self.output(self._said(embedded, state.hidden, context))  # (B, K, V)
        return Step(logits, state, attended.weights)

    def select(self, state: object, rows: Tensor) -> DecoderState:
        """The state of rows (B, K') of each source's K; the memory stays as it is."""
        assert isinstance(state, DecoderState)
        index = rows.unsqueeze(-1).expand(-1, -1, self.config.hidden_size)  # (B, K', H)
        return state._replace(
            hidden=state.hidden.gather(1, index), cell=state.cell.gather(1, index)
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
        Raises `UserError` where there is no word to feed, T = 0.
        """
        if tokens.shape[-1] == 0:
            raise UserError(f"decoder: of words {tuple(tokens.shape)}, (B, K, T), T is 0")
        self._forget_if_training()
        rows = tokens.shape[1]
        embedded = self._drop(self.embedding(tokens))  # (B, K, T, E)
        word_gates = self._word_gates(embedded)  # (B, K, T, 4H)
        state = self._initial_state(memory)
        if rows != 1:
            state = self.select(state, tokens.new_zeros(tokens.shape[:2]))
        fused = self.fused and memory.prepared is not None
        recur = self._recur_fused if fused else self._recur_stepwise
        hidden, attended = recur(word_gates, state, generator, expected)
        logits = self.output(self._said(embedded, hidden, attended.context))  # (B, K, T, V)
        if self.config.selection == "soft":
            return TeacherForced(logits, attended.weights, None, None)
        return TeacherForced(logits, attended.weights, attended.log_probability, attended.entropy)

    def _recur_stepwise(
        self,
        word_gates: Tensor,
        state: DecoderState,
        generator: torch.Generator | None,
        expected: Tensor | None,
    ) -> tuple[Tensor, Attended]:
        """The recurrence over all words (B, K, T, 4H), step by step, left to autograd.

        Gives the states (B, K, T, H) and what was looked at, with gated contexts (B, K, T, D).
        """
        weights = self._recurrent_weights()
        hiddens, looks = [], []
        for time in range(word_gates.shape[2]):
            context, attended = self._look(state, generator, expected)
            fed = torch.cat([context, state.hidden], dim=-1)  # (B, K, D + H)
            state = self._after(state, word_gates[:, :, time] + functional.linear(fed, weights))
            hiddens.append(state.hidden)
            looks.append(attended._replace(context=context))
        together: list[Any] = [
            None if each[0] is None else torch.stack(each, dim=2)
            for each in zip(*looks, strict=True)
        ]  # (B, K, T, ...) each
        return torch.stack(hiddens, dim=2), Attended(*together)

    def _recur_fused(
        self,
        word_gates: Tensor,
        state: DecoderState,
        generator: torch.Generator | None,
        expected: Tensor | None,
    ) -> tuple[Tensor, Attended]:
        """The same, by `captioner.caption.recurrence`."""
        selection, score, memory = self.attention.selection, self.attention.score, state.memory
        assert isinstance(score, AdditiveScore)
        assert memory.prepared is not None
        choose = None
        if isinstance(selection, HardSelection):
            choose = partial(selection.choose, generator=generator)
        gate = None if self.config.gate == "none" else self.gate
        hidden, context, log_weights, positions = Recurrence.apply(
            Looks(memory.prepared, memory.mask, choose, expected),
            word_gates,
            state.hidden,
            state.cell,
            memory.values,
            memory.keys,
            *Weights(
                as_computed(score.query_projection.weight),
                score.energies(),
                self._recurrent_weights(),
                None if gate is None else as_computed(gate.weight),
                None if gate is None else as_computed(gate.bias),
            ),
        )
        weights = log_weights.exp()  # (B, K, T, L)
        if choose is not None:
            return hidden, Attended(context, weights, log_weights, positions, log_weights)
        return hidden, Attended(context, weights, log_weights)

    def _drop(self, hidden: Tensor) -> Tensor:
        """Dropout of (B, K, ...), the same numbers in all K rows of a source.

        Rows are held against each other, as draws of hard attention are, and should then differ by
        what they are and not by what was dropped.
        """
        if hidden.shape[1] == 1 or not self.training:
            return self.dropout(hidden)  # type: ignore[no-any-return]
        kept = self.dropout(hidden.new_ones(hidden.shape[0], 1, *hidden.shape[2:]))
        return hidden * kept  # type: ignore[no-any-return]

    def _forget_if_training(self) -> None:
        """Where a gradient is wanted, let go what was packed of all weights: they are to change.

        Here for the whole decoder, since not every weight is used through its own layer.
        """
        if torch.is_grad_enabled():
            forget_packed(self)

    def _word_gates(self, embedded: Tensor) -> Tensor:
        """The words' part of the LSTM's gates, and the biases: (..., E) -> (..., 4H).

        Equation 1, T E y.
        """
        weight = self.lstm.weight_ih[:, : self.config.embedding_size]
        return linear(embedded, weight, self._bias())

    def _bias(self) -> Tensor:
        """The LSTM's two biases, (4H), as one."""
        return self.lstm.bias_ih + self.lstm.bias_hh

    def _recurrent_weights(self) -> Tensor:
        """The LSTM's weights for context and state, (4H, D + H).

        Taken once for all steps: cutting or casting them anew at every step costs more, there
        and in the backward pass, than the products themselves.
        """
        of_context = self.lstm.weight_ih[:, self.config.embedding_size :]
        return as_computed(torch.cat([of_context, self.lstm.weight_hh], dim=1))

    def _look(
        self,
        state: DecoderState,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> tuple[Tensor, Attended]:
        """A state -> the gated context (B, K, D), and what was looked at. Equations 4 and 5."""
        attended: Attended = self.attention(
            state.hidden, state.memory, generator=generator, expected=expected
        )
        context = attended.context  # (B, K, D)
        if self.config.gate != "none":
            context = torch.sigmoid(self.gate(state.hidden)) * context
        return context, attended

    def _after(self, state: DecoderState, gates: Tensor) -> DecoderState:
        """The state after the LSTM's gates (B, K, 4H), before activation. Equations 1 to 3.

        The gates are in torch's order: input, forget, candidate, output.
        """
        entry, forget, candidate, exit_ = gates.chunk(4, dim=-1)  # (B, K, H) each
        cell = torch.sigmoid(forget) * state.cell + torch.sigmoid(entry) * torch.tanh(candidate)
        hidden = torch.sigmoid(exit_) * torch.tanh(cell)
        return state._replace(hidden=hidden, cell=cell)

    def _said(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Embedding (..., E), state (..., H), context (..., D) -> what L_o is given, (..., E).

        Equation 7. Without deep output it is the state, (..., H).
        """
        if self.config.deep_output:
            hidden = embedded + self.output_hidden(self._drop(hidden))  # (..., E)
            hidden = hidden + self.output_context(context)
        if self.config.output_tanh:
            hidden = torch.tanh(hidden)
        said: Tensor = self._drop(hidden)
        return said


def _mean(memory: Memory) -> Tensor:
    """The mean (B, 1, D) of the annotation vectors that may be attended."""
    values, mask = memory.values, memory.mask  # (B, L, D) and (B, L)
    if mask is None:
        return values.mean(dim=1, keepdim=True)
    seen = mask.unsqueeze(-1)  # (B, L, 1)
    wide = torch.promote_types(values.dtype, torch.float32)
    total = values.masked_fill(~seen, 0).sum(dim=1, keepdim=True, dtype=wide)  # (B, 1, D)
    return (total / seen.sum(dim=1, keepdim=True)).to(values.dtype)
