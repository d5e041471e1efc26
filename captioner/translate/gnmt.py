"""GNMT: deep LSTM stacks with residual connections; attention is fed to all decoder layers.

Wu et al. 2016, *Google's Neural Machine Translation System*, sections 3.1 and 3.2. The search's
penalties are in `captioner.decoding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention import AdditiveScore, Attention, Memory
from captioner.decoding import Step
from captioner.errors import UserError
from captioner.field_checks import check_probabilities, check_sizes
from captioner.translate.cells import FedCell, RecurrentStack
from captioner.translate.checks import check_tie
from captioner.translate.embeddings import Embeddings
from captioner.translate.model import TeacherForced, TranslationModel, stack_steps
from captioner.translate.recurrent_encoder import RecurrentEncoder
from captioner.translate.source_memory import RecurrentState, SourceMemory


@dataclass(frozen=True)
class GNMTConfig:
    """Sizes and options of a `GNMT` model.

    embedding_size: E. hidden_size: H of every layer; 1024 in the paper. attention_size: A; 1024.
    layers: of the encoder, the bottom one of which reads in both directions, and of the decoder;
        8 in the paper, at least 2.
    residual_from: the lowest layer, counted from 1, whose input is added to its output; 3 in the
        paper, at least 3 since below that inputs have other sizes. With fewer layers none is.
    tie_embeddings: `none`, `target` or `all`; see `captioner.translate.embeddings`.
    scale_embeddings: multiply embeddings by sqrt(E), of use where they are tied; see there.
    dropout: probability, on embeddings and on the input of every layer above the bottom one.

    Raises `UserError` for values out of range.
    """

    embedding_size: int = 512
    hidden_size: int = 512
    attention_size: int = 512
    layers: int = 4
    residual_from: int = 3
    tie_embeddings: str = "none"
    scale_embeddings: bool = False
    dropout: float = 0.3

    def __post_init__(self) -> None:
        model = "gnmt"
        check_sizes(model, self, "embedding_size", "hidden_size", "attention_size")
        for name, least in (("layers", 2), ("residual_from", 3)):
            if getattr(self, name) < least:
                raise UserError(f"{model} {name} {getattr(self, name)} is not at least {least}")
        check_probabilities(model, self, "dropout")
        check_tie(model, self, self.hidden_size)


class GNMTState(NamedTuple):
    """memory: the encoder's outputs. recurrent: hidden and cell of each layer.

    The bottom layer's are (B, K, H), those of the others (B, K, 1, H).
    """

    memory: Memory
    recurrent: tuple[RecurrentState, ...]


class GNMT(TranslationModel):
    """Stacked LSTMs; the bottom decoder layer attends, and all layers are fed its context.

    The bottom layer's output of the previous step is the query (section 3, equation 4:
    a_i = AttentionFunction(y_(i-1), x)), so that in training only this layer runs step by step.
    Each decoder layer starts from the final state of the encoder layer of the same number, the
    bottom one from the backward direction; the paper does not specify the initial states.
    """

    def __init__(self, config: GNMTConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        embedding, hidden = config.embedding_size, config.hidden_size
        self.embeddings = Embeddings.of(config, source_size, target_size, hidden)
        self.bottom_encoder = RecurrentEncoder("lstm", embedding, 2 * hidden, bidirectional=True)
        self.encoders = nn.ModuleList(
            RecurrentEncoder("lstm", hidden if layer > 2 else 2 * hidden, hidden)
            for layer in range(2, config.layers + 1)
        )
        self.attention = Attention(AdditiveScore(hidden, hidden, config.attention_size))
        self.bottom_decoder = FedCell("lstm", embedding, hidden, hidden)
        self.decoders = nn.ModuleList(
            RecurrentStack("lstm", 2 * hidden, hidden) for _ in range(2, config.layers + 1)
        )
        self.dropout = nn.Dropout(config.dropout)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the top layer's outputs (B, S, H).

        The final states are (B, layers, H).
        """
        outputs, final = self.bottom_encoder(self.embeddings.source(source), mask)  # (B, S, 2H)
        finals = [tuple(each[:, :, self.config.hidden_size :] for each in final)]  # (B, 1, H)
        for layer, encoder in enumerate(self.encoders, start=2):
            above, final = encoder(self.dropout(outputs), mask)  # (B, S, H)
            outputs = self._add_residual(layer, above, outputs)
            finals.append(final)
        combined = tuple(
            torch.cat(each, dim=1)  # (B, layers, H)
            for each in zip(*finals, strict=True)
        )
        return SourceMemory.of(self.attention.remember(outputs, mask), combined)

    def start(self, memory: Memory) -> GNMTState:
        """Each layer starts from the final state of the encoder layer of the same number."""
        assert isinstance(memory, SourceMemory)
        hidden, cell = memory.final  # (B, layers, H)
        bottom = hidden[:, :1], cell[:, :1]  # (B, 1, H)
        upper = [
            (hidden[:, layer, None, None], cell[:, layer, None, None])  # (B, 1, 1, H)
            for layer in range(1, self.config.layers)
        ]
        return GNMTState(memory, (bottom, *upper))

    def step(self, tokens: Tensor, state: GNMTState) -> Step:
        """Last tokens (B, K) -> logits (B, K, V), state, weights (B, K, S)."""
        outputs, state = self._run(tokens.unsqueeze(-1), state)  # T = 1
        return Step(outputs.logits.squeeze(2), state, outputs.weights.squeeze(2))

    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """See `TranslationModel.forward`; only the bottom layer runs step by step."""
        outputs, _ = self._run(tokens, self.start_rows(memory, tokens))
        return outputs

    def _run(self, tokens: Tensor, state: GNMTState) -> tuple[TeacherForced, GNMTState]:
        """Tokens (B, K, T) -> outputs and the next state."""
        projected = self.bottom_decoder.project_input(
            self.embeddings.target(tokens)
        )  # (B, K, T, 4H)
        bottom = state.recurrent[0]
        hiddens, contexts, weights = [], [], []
        for gates in projected.unbind(dim=2):  # (B, K, 4H)
            attended = self.attention(bottom[0], state.memory)
            bottom = self.bottom_decoder(gates, attended.context, bottom)
            hiddens.append(bottom[0])
            contexts.append(attended.context)
            weights.append(attended.weights)
        outputs, context = stack_steps(hiddens), stack_steps(contexts)  # (B, K, T, H)
        states = [bottom]
        for layer, decoder in enumerate(self.decoders, start=2):
            fed = torch.cat([self.dropout(outputs), context], dim=-1)  # (B, K, T, 2H)
            above, state_above = decoder(fed, state.recurrent[layer - 1])  # (B, K, T, H)
            outputs = self._add_residual(layer, above, outputs)
            states.append(state_above)
        logits = self.embeddings.logits(self.dropout(outputs))  # (B, K, T, V)
        teacher_forced = TeacherForced(logits, stack_steps(weights))
        return teacher_forced, state._replace(recurrent=tuple(states))

    def _add_residual(self, layer: int, outputs: Tensor, inputs: Tensor) -> Tensor:
        """Equation 6: from `residual_from` on, add the inputs of a layer to its outputs."""
        return outputs + inputs if layer >= self.config.residual_from else outputs
