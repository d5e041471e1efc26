"""Luong's model: stacked encoder and decoder, attention on the new state, global or local.

Luong et al. 2015, *Effective Approaches to Attention-based Neural Machine Translation*.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from captioner import cpu
from captioner.attention.attention import Attention, LocalAttention, PredictedCentre
from captioner.attention.memory import Memory
from captioner.attention.scores import ConcatScore, DotScore, GeneralScore, Score
from captioner.attention.selection import Attended
from captioner.decoding.protocol import TeacherForced
from captioner.schema import Length, Size
from captioner.translate.recurrent import (
    Cell,
    FedCell,
    Layers,
    RecurrentConfig,
    RecurrentEncoder,
    RecurrentModel,
    RecurrentStack,
    RecurrentState,
    SourceMemory,
)


class LuongConfig(RecurrentConfig):
    """Sizes and options of a `Luong` model.

    The paper has LSTMs, sizes of 1000, 4 layers, one direction, a window of 10 and dropout 0.2.
    """

    cell: Cell = "lstm"
    layers: Layers = 2
    bidirectional: bool = Field(
        False, description="read the source in both directions, each with half of hidden_size"
    )
    score: Literal["dot", "general", "concat"] = Field(
        "general", description="score function, section 3.1"
    )
    attention_size: Size = Field(512, description="A, of the score concat only")
    attention: Literal["global", "local-m", "local-p"] = Field(
        "global",
        description="local-m: around the source token of the same number; local-p: around a "
        "predicted place",
    )
    window: Length = Field(10, description="D of local attention, which covers 2 D + 1 tokens")
    input_feeding: bool = Field(True, description="feed h~ into the next step, section 3.3")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size {self.hidden_size} is odd: each direction has half of it"
            )
        return self

    def make_score(self) -> Score:
        """The score function."""
        if self.score == "dot":
            return DotScore()
        if self.score == "general":
            return GeneralScore(self.hidden_size, self.hidden_size)
        return ConcatScore(self.hidden_size, self.hidden_size, self.attention_size)


class LuongState(NamedTuple):
    """State of a `Luong` decoder.

    memory: the encoder's outputs. recurrent: (B, K, layers, H) each. attentional: h~ of the last
    step, (B, K, H). time: (B, K), number of steps so far.
    """

    memory: Memory
    recurrent: RecurrentState
    attentional: Tensor
    time: Tensor


class Luong(RecurrentModel):
    """Stacked encoder and decoder; h~ = tanh(W_c [c; h]) predicts the word. Section 3."""

    def __init__(self, config: LuongConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        self.config = config
        embedding, hidden, layers = config.embedding_size, config.hidden_size, config.layers
        self.encoder = RecurrentEncoder(
            config.cell,
            embedding,
            hidden // 2 if config.bidirectional else hidden,
            layers,
            config.dropout,
            config.bidirectional,
        )
        if config.input_feeding:
            inputs = [(embedding, hidden), *[(hidden, 0)] * (layers - 1)]
            self.cells = nn.ModuleList(FedCell(config.cell, *sizes, hidden) for sizes in inputs)
        else:
            self.decoder = RecurrentStack(config.cell, embedding, hidden, layers, config.dropout)
        score, is_predicted = config.make_score(), config.attention == "local-p"
        self.attention: Attention | LocalAttention
        if config.attention == "global":
            self.attention = Attention(score)
        else:
            self.attention = LocalAttention(score, config.window, is_predicted)
        self.centre = PredictedCentre(hidden, hidden) if is_predicted else None
        self.combined = cpu.Linear(2 * hidden, hidden, bias=False)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the top layer's outputs (B, S, H)."""
        outputs, final = self.encoder(self.embeddings.source(source), mask)
        memory = self.attention.remember(outputs, mask)
        return SourceMemory(memory.values, memory.keys, memory.mask, final)

    def start(self, memory: Memory) -> LuongState:
        """Each layer starts from the encoder's final state; h~ is 0."""
        assert isinstance(memory, SourceMemory)
        recurrent = tuple(each.unsqueeze(1) for each in memory.final)  # (B, 1, layers, H)
        attentional = torch.zeros_like(recurrent[0][:, :, 0])  # (B, 1, H)
        time = torch.zeros_like(attentional[..., 0], dtype=torch.long)  # (B, 1)
        return LuongState(memory, recurrent, attentional, time)

    def run(self, tokens: Tensor, state: LuongState) -> tuple[TeacherForced, LuongState]:
        """See `SequenceDecoder.run`; with input feeding all steps run one by one."""
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        if self.config.input_feeding:
            outputs, steps = [], []
            for gates in self.cells[0].project_input(embedded).unbind(dim=2):  # type: ignore[operator]
                state, step_weights = self._step_fed(gates, state)
                outputs.append(state.attentional)
                steps.append(step_weights)
            attentional, weights = torch.stack(outputs, dim=2), torch.stack(steps, dim=2)
        else:
            hidden, recurrent = self.decoder(embedded, state.recurrent)  # (B, K, T, H)
            times = torch.arange(tokens.shape[2], device=tokens.device) + state.time.unsqueeze(2)
            attended = self._attend(hidden.flatten(1, 2), state.memory, times.flatten(1))
            context = attended.context.view_as(hidden)
            weights = attended.weights.view(*tokens.shape, -1)  # (B, K, T, S)
            attentional = self._attentional(context, hidden)  # (B, K, T, H)
            state = LuongState(
                state.memory, recurrent, attentional[:, :, -1], state.time + tokens.shape[2]
            )
        return TeacherForced(self.embeddings.logits(attentional), weights), state

    def _step_fed(self, gates: Tensor, state: LuongState) -> tuple[LuongState, Tensor]:
        """The bottom layer's projected embeddings (B, K, gates) -> state and weights."""
        layers: list[RecurrentState] = []
        for number, cell in enumerate(self.cells):
            if number > 0:
                gates = cell.project_input(self.dropout(layers[-1][0]))  # type: ignore[operator]
            before = tuple(each[:, :, number] for each in state.recurrent)  # (B, K, H) each
            layers.append(cell(gates, state.attentional, before))  # Read by the bottom layer only.
        hidden = layers[-1][0]
        attended = self._attend(hidden, state.memory, state.time)
        recurrent = tuple(torch.stack(each, dim=2) for each in zip(*layers, strict=True))
        attentional = self._attentional(attended.context, hidden)
        return LuongState(state.memory, recurrent, attentional, state.time + 1), attended.weights

    def _attend(self, hidden: Tensor, memory: Memory, time: Tensor) -> Attended:
        """Attend with states (B, Q, H) at steps (B, Q), counted from 0."""
        if self.config.attention == "global":
            return self.attention(hidden, memory)  # type: ignore[no-any-return]
        centres = time.float() if self.centre is None else self.centre(hidden, memory)  # (B, Q)
        return self.attention(hidden, memory, centres)  # type: ignore[no-any-return]

    def _attentional(self, context: Tensor, hidden: Tensor) -> Tensor:
        """h~ = tanh(W_c [c; h]), equation 5: contexts and states (..., H) -> (..., H)."""
        joined = torch.cat([context, hidden], dim=-1)  # (..., 2H)
        return self.dropout(torch.tanh(self.combined(joined)))  # type: ignore[no-any-return]
