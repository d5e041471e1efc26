"""The caption decoder: an LSTM that attends to the annotation vectors before every word.

Xu et al. 2015, *Show, Attend and Tell*, sections 3.1.2 and 4.2.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner import cpu
from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.attention.scores import AdditiveScore
from captioner.attention.selection import Attended, HardSelection, SoftSelection
from captioner.decoding.protocol import Step, TeacherForced, select_rows
from captioner.devices import at_least_float32
from captioner.models.caption_config import DecoderConfig
from captioner.models.caption_decoder import CaptionDecoder
from captioner.models.score_config import make_score
from captioner.module_weights import empty_embedding


class DecoderState(NamedTuple):
    """The state after some words: a memory shared by K rows, their hidden and cell (B, K, H)."""

    memory: Memory
    hidden: Tensor
    cell: Tensor


class ShowAttendTellDecoder(CaptionDecoder):
    """The decoder of Show, Attend and Tell."""

    config: DecoderConfig

    def __init__(self, config: DecoderConfig, vocabulary_size: int) -> None:
        super().__init__(config)
        embedding, hidden, memory = config.embedding_size, config.hidden_size, config.memory_size
        options = config.score.model_dump(exclude={"kind"}, exclude_defaults=True)
        score = make_score(config.score.kind, hidden, memory, config.attention_size, **options)
        selection = SoftSelection() if config.selection == "soft" else HardSelection()
        self.attention = Attention(score, selection, config.temperature)
        self.embedding = empty_embedding(vocabulary_size, embedding)
        self.lstm = cpu.LSTMCell(embedding + memory, hidden)
        self.initial_hidden = nn.Linear(memory, hidden)
        self.initial_cell = nn.Linear(memory, hidden)
        if config.gate != "none":
            self.gate = nn.Linear(hidden, 1 if config.gate == "scalar" else memory)
        if config.deep_output:
            self.output_hidden = nn.Linear(hidden, embedding)
            self.output_context = nn.Linear(memory, embedding, bias=False)
        self.output = nn.Linear(embedding if config.deep_output else hidden, vocabulary_size)
        self.dropout = cpu.Dropout(config.dropout)
        # Embeddings on the scale of annotation vectors (about one), and an open forget gate.
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)
        nn.init.uniform_(self.output.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.lstm.bias_ih[hidden : 2 * hidden] = 1.0

    def remember(self, annotations: Tensor) -> Memory:
        """Annotation vectors (B, L, D) -> the memory for `start` and `forward`."""
        return self.attention.remember(_autocast(self.standardised(annotations)))

    def start(self, memory: Memory) -> DecoderState:
        """A memory of B sources -> the state before the first word, (B, 1, H). Section 3.1.2."""
        mean = self._drop(memory.values.mean(dim=1, keepdim=True))  # (B, 1, D)
        hidden, cell = self.initial_hidden(mean), self.initial_cell(mean)  # (B, 1, H) each
        if self.config.start_tanh:
            hidden, cell = torch.tanh(hidden), torch.tanh(cell)
        return DecoderState(memory, at_least_float32(hidden), at_least_float32(cell))

    def step(self, tokens: Tensor, state: DecoderState) -> Step:
        """Last words (B, K) and the state before them -> `Step` for the next words."""
        embedded = self._drop(self.embedding(tokens))  # (B, K, E)
        attended = self._attend(state)
        inputs = torch.cat([embedded, attended.context], dim=-1)  # (B, K, E + D)
        state = _lstm_update(state, self.lstm.gates(inputs, state.hidden))
        features = self._output_features(embedded, state.hidden, attended.context)
        return Step(self.output(features), state, attended.weights)  # logits (B, K, V)

    def forward(
        self,
        memory: Memory,
        tokens: Tensor,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> TeacherForced:
        """Teacher forcing: fed words (B, K, T), `<start>` first -> `TeacherForced`.

        Only the recurrence runs step by step; the rest is one product each over all T steps.
        generator: source of hard attention's draws.
        expected: (B, K) boolean, captions for which hard attention takes the expected value.
        """
        embedded = self._drop(self.embedding(tokens))  # (B, K, T, E)
        # Equation 1: T E y and the biases.
        of_inputs, of_hidden, input_bias, hidden_bias = self.lstm.weights
        of_word = of_inputs[:, : self.config.embedding_size]  # (4H, E)
        word_gates = functional.linear(embedded, of_word, input_bias + hidden_bias)
        # (B, K, T, 4H)
        state = self.start(memory)
        if tokens.shape[1] != 1:
            state = select_rows(state, tokens.new_zeros(tokens.shape[:2]))
        # The weights for context and state, (4H, D + H). Slicing or casting them at every step
        # costs more than the products, there and in the backward pass.
        of_context = of_inputs[:, self.config.embedding_size :]
        weights = _autocast(torch.cat([of_context, of_hidden], dim=1))
        score = self.attention.score
        has_cpu_code = type(score) is AdditiveScore and score.has_cpu_code
        has_cpu_code = has_cpu_code and memory.mask is None
        is_on_cpu = has_cpu_code and cpu.runs_on(tokens.device)
        recur = self._recur_on_cpu if is_on_cpu else self._recur
        hidden, attended = recur(weights, word_gates, state, generator, expected)
        features = self._output_features(embedded, hidden, attended.context)
        logits = self.output(features)  # (B, K, T, V)
        if attended.positions is None:
            return TeacherForced(logits, attended.weights)
        return TeacherForced(logits, attended.weights, attended.log_probability, attended.entropy)

    def _recur(
        self,
        weights: Tensor,
        word_gates: Tensor,
        state: DecoderState,
        generator: torch.Generator | None,
        expected: Tensor | None,
    ) -> tuple[Tensor, Attended]:
        """Run the recurrence over all words (B, K, T, 4H) step by step, under autograd.

        Gives the states (B, K, T, H) and the `Attended`, with gated contexts (B, K, T, D).
        """
        hidden_states = []
        steps = []
        for time in range(word_gates.shape[2]):
            attended = self._attend(state, generator, expected)
            inputs = torch.cat([attended.context, state.hidden], dim=-1)  # (B, K, D + H)
            gates = word_gates[:, :, time] + functional.linear(inputs, weights)
            state = _lstm_update(state, gates)
            hidden_states.append(state.hidden)
            steps.append(attended)
        stacked = {
            name: torch.stack([getattr(attended, name) for attended in steps], dim=2)
            for name, first in steps[0]._asdict().items()
            if first is not None
        }  # (B, K, T, ...) each
        return torch.stack(hidden_states, dim=2), Attended(**stacked)

    def _drop(self, hidden: Tensor) -> Tensor:
        """Dropout of (B, K, ...), one mask for the K rows: draws differ in positions only."""
        if hidden.shape[1] == 1 or not self.training:
            return self.dropout(hidden)  # type: ignore[no-any-return]
        mask = self.dropout(hidden.new_ones(hidden.shape[0], 1, *hidden.shape[2:]))
        return hidden * mask  # type: ignore[no-any-return]

    def _attend(
        self,
        state: DecoderState,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> Attended:
        """A state -> the `Attended`, with the gated context (B, K, D). Equations 4 and 5."""
        attended: Attended = self.attention(state.hidden, state.memory, generator, expected)
        if self.config.gate == "none":
            return attended
        beta = torch.sigmoid(self.gate(state.hidden))  # (B, K, 1 or D)
        return attended._replace(context=beta * attended.context)

    def _output_features(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Embedding (..., E), state (..., H), context (..., D) -> input of L_o. Equation 7."""
        if self.config.deep_output:
            hidden = embedded + self.output_hidden(self._drop(hidden))  # (..., E)
            hidden = hidden + self.output_context(context)
        if self.config.output_tanh:
            hidden = torch.tanh(hidden)
        return self._drop(hidden)

    def _recur_on_cpu(
        self,
        weights: Tensor,
        word_gates: Tensor,
        state: DecoderState,
        generator: torch.Generator | None,
        expected: Tensor | None,
    ) -> tuple[Tensor, Attended]:
        """Like `_recur`, by `captioner.cpu.Recurrence`."""
        score = self.attention.score
        assert isinstance(score, AdditiveScore)
        choose = None
        if isinstance(self.attention.selection, HardSelection):
            choose = partial(self.attention.selection.choose, generator=generator)
        gate: tuple[Tensor | None, ...] = (None, None)
        if self.config.gate != "none":
            gate = _autocast(self.gate.weight), _autocast(self.gate.bias)
        hidden, context, log_weights, positions = cpu.Recurrence.apply(
            choose,
            expected,
            word_gates,
            state.hidden,
            state.cell,
            state.memory.values,
            state.memory.keys,
            _autocast(score.query_projection.weight),
            score.energy.weight[0] / self.attention.temperature,
            weights,
            *gate,
        )
        attended = Attended(context, log_weights.exp(), log_weights)  # (B, K, T, ...) each
        if choose is not None:
            attended = attended._replace(positions=positions, log_weights=log_weights)
        return hidden, attended


def _lstm_update(state: DecoderState, gates: Tensor) -> DecoderState:
    """Apply the LSTM's gates (B, K, 4H), in torch's order. Equations 1 to 3."""
    gates = at_least_float32(gates)  # The cell sums over all words.
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)  # (B, K, H) each
    cell = torch.sigmoid(forget_gate) * state.cell
    cell = cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
    hidden = torch.sigmoid(output_gate) * torch.tanh(cell)
    return state._replace(hidden=hidden, cell=cell)


def _autocast(tensor: Tensor) -> Tensor:
    """Cast to the type of the current autocast region, once for all uses."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device):
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor
