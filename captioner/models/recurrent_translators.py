"""The recurrent translation models, in the order of their papers, and what they share."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from captioner import cpu
from captioner.attention.attention import Attention, LocalAttention, PredictedCentre
from captioner.attention.memory import Memory
from captioner.attention.scores import AdditiveScore
from captioner.decoding.protocol import State, TeacherForced, select_sources
from captioner.devices import at_least_float32
from captioner.models.score_config import make_score
from captioner.models.translation_config import (
    BahdanauConfig,
    GNMTConfig,
    LuongConfig,
    RecurrentConfig,
    SequenceToSequenceConfig,
)
from captioner.models.translation_model import (
    Embeddings,
    FedCell,
    RecurrentNetwork,
    TranslationModel,
)


class RecurrentModel(TranslationModel):
    """A translation model with the embeddings and the dropout of its config.

    The state of its decoder is a tuple: a `SourceMemory`, then the states, at first its `initial`.
    source_size, target_size: V of each side.
    """

    def __init__(self, config: RecurrentConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config: Any = config
        output_size = getattr(config, "output_size", config.hidden_size)  # Bahdanau's has its own.
        tie, scale, dropout = config.tie_embeddings, config.scale_embeddings, config.dropout
        sizes = source_size, target_size, config.embedding_size, output_size
        self.embeddings = Embeddings(*sizes, tie, scale, dropout)
        self.dropout = cpu.Dropout(config.dropout)

    def start(self, memory: Any) -> State:
        """The state that `remember` computed."""
        return memory, *memory.initial


@dataclass(frozen=True, eq=False)
class SourceMemory(Memory):
    """A memory with the decoder's first states: tensors (B, 1, ...) in tuples."""

    initial: State = ()

    def select(self, sources: Tensor) -> Self:
        """Select sources (B',), indices into B."""
        initial = select_sources(self.initial, sources)
        return replace(super().select(sources), initial=initial)


class SequenceToSequence(RecurrentModel):
    """Encoder and decoder without attention; the encoder's last state is all that passes.

    The memory has length L = 1, the last state, so that every attention weight is 1. The recurrent
    state is (B, K, layers, H) each.
    """

    def __init__(
        self, config: SequenceToSequenceConfig, source_size: int, target_size: int
    ) -> None:
        super().__init__(config, source_size, target_size)
        embedding, hidden, layers = config.embedding_size, config.hidden_size, config.layers
        self.encoder = RecurrentNetwork(config.cell, embedding, hidden, layers, config.dropout)
        self.decoder = RecurrentNetwork(config.cell, embedding, hidden, layers, config.dropout)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the last state, a memory of length 1."""
        if self.config.reverse_source:
            source = reverse_tokens(source, mask)
        _, final = self.encoder.encode(self.embeddings.source(source), mask)
        last = final[0][:, 0, -1:]  # (B, 1, H)
        return SourceMemory(last, last, initial=(final,))

    def run(self, tokens: Tensor, state: State) -> tuple[TeacherForced, State]:
        """One run of the network for all steps."""
        memory, recurrent = state
        hidden, recurrent = self.decoder(self.embeddings.target(tokens), recurrent)  # (B, K, T, H)
        logits = self.embeddings.logits(self.dropout(hidden))  # (B, K, T, V)
        weights = logits.new_ones(*tokens.shape, 1)  # (B, K, T, 1)
        return TeacherForced(logits, weights), (memory, recurrent)


def reverse_tokens(tokens: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse the tokens (B, S) of each row; padding stays at the end."""
    positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)  # (B, S)
    lengths = positions[:, -1:] + 1 if mask is None else mask.sum(dim=1, keepdim=True)  # (B, 1)
    last = lengths.to(tokens.device, non_blocking=True) - 1
    return tokens.gather(1, torch.where(positions > last, positions, last - positions))  # (B, S)


class Bahdanau(RecurrentModel):
    """RNNsearch: attends to all annotations with its previous state before every word.

    Follows appendix A of the paper, except that torch's GRU applies the reset gate after the matrix
    U instead of before it, and that the output layer has a bias.
    """

    def __init__(self, config: BahdanauConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        embedding, hidden, output = config.embedding_size, config.hidden_size, config.output_size
        self.encoder = RecurrentNetwork("gru", embedding, hidden, bidirectional=True)
        score = AdditiveScore(hidden, 2 * hidden, config.attention_size, bias=False)
        self.attention = Attention(score)
        self.initial = nn.Linear(hidden, hidden, bias=False)
        self.cell = FedCell("gru", embedding, 2 * hidden, hidden)
        self.output_word = nn.Linear(embedding, 2 * output)
        self.output_hidden = nn.Linear(hidden, 2 * output, bias=False)
        self.output_context = nn.Linear(2 * hidden, 2 * output, bias=False)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> annotations (B, S, 2H). Equation 7.

        s_0 = tanh(W_s h_1), of the backward state at the first word. Appendix A.2.2.
        """
        annotations, _ = self.encoder.encode(self.embeddings.source(source), mask)  # (B, S, 2H)
        memory = self.attention.remember(self.dropout(annotations), mask)
        backward = memory.values[:, :1, self.config.hidden_size :]  # (B, 1, H)
        state = at_least_float32(torch.tanh(self.initial(backward)))
        return SourceMemory(memory.values, memory.keys, memory.mask, ((state,),))

    def run(self, tokens: Tensor, state: State) -> tuple[TeacherForced, State]:
        """Only the GRU and its attention run step by step."""
        memory, before = state
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        states, contexts, weights = self.cell.attend(self.attention, embedded, before, memory)
        read = states[:-1] if self.config.output_state == "previous" else states[1:]
        hidden = torch.stack([part for (part,) in read], dim=2)  # (B, K, T, H)
        # Appendix A.2.2: maxout over pairs of U s + V E y + C c.
        pairs = self.output_word(embedded) + self.output_hidden(hidden)
        pairs = pairs + self.output_context(contexts)  # (B, K, T, 2 * output size)
        largest = pairs.unflatten(-1, (-1, 2)).amax(dim=-1)  # (B, K, T, output size)
        logits = self.embeddings.logits(self.dropout(largest))
        return TeacherForced(logits, weights), (memory, states[-1])


class Luong(RecurrentModel):
    """Stacked encoder and decoder; h~ = tanh(W_c [c; h]) predicts the word. Section 3.

    Each layer starts from the encoder's final state, and h~ from 0. A state has the memory, the
    recurrent states (B, K, layers, H) each, the last h~ (B, K, H) and the number of steps (B, K).
    """

    def __init__(self, config: LuongConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        embedding, hidden, layers = config.embedding_size, config.hidden_size, config.layers
        size = hidden // 2 if config.bidirectional else hidden
        dropout, both_ways = config.dropout, config.bidirectional
        self.encoder = RecurrentNetwork(config.cell, embedding, size, layers, dropout, both_ways)
        if config.input_feeding:
            bottom = FedCell(config.cell, known_size=embedding, fed_size=hidden, hidden_size=hidden)
            above = [FedCell(config.cell, hidden, 0, hidden) for _ in range(1, layers)]
            self.cells = nn.ModuleList([bottom, *above])
        else:
            self.decoder = RecurrentNetwork(config.cell, embedding, hidden, layers, dropout)
        # Queries and values have one size.
        score = make_score(config.score, hidden, hidden, config.attention_size)
        is_predicted = config.attention == "local-p"
        local = LocalAttention(score, config.window, is_predicted)
        self.attention = Attention(score) if config.attention == "global" else local
        self.centre = PredictedCentre(hidden, hidden) if is_predicted else None
        self.combined = nn.Linear(2 * hidden, hidden, bias=False)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the top layer's outputs (B, S, H)."""
        outputs, final = self.encoder.encode(self.embeddings.source(source), mask)
        memory = self.attention.remember(outputs, mask)
        attentional = torch.zeros_like(final[0][:, :, 0])  # (B, 1, H)
        time = torch.zeros_like(attentional[:, :, 0], dtype=torch.long)  # (B, 1)
        initial = (final, attentional, time)
        return SourceMemory(memory.values, memory.keys, memory.mask, initial)

    def run(self, tokens: Tensor, state: State) -> tuple[TeacherForced, State]:
        """With input feeding all steps run one by one."""
        memory, recurrent, attentional, time = state
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        if self.config.input_feeding:
            steps = []
            for gates in self.cells[0].known(embedded).unbind(dim=2):  # type: ignore[operator]
                hidden, recurrent = self._step(gates, recurrent, attentional)
                attentional, weights = self._attend(hidden, memory, time)
                time = time + 1
                steps.append((attentional, weights))
            vectors, weights = (torch.stack(parts, dim=2) for parts in zip(*steps, strict=True))
        else:
            hidden, recurrent = self.decoder(embedded, recurrent)  # (B, K, T, H)
            times = torch.arange(tokens.shape[2], device=tokens.device) + time.unsqueeze(2)
            vectors, weights = self._attend(hidden.flatten(1, 2), memory, times.flatten(1))
            vectors = vectors.view_as(hidden)  # (B, K, T, H)
            weights = weights.view(*tokens.shape, -1)  # (B, K, T, S)
            attentional = vectors[:, :, -1]  # (B, K, H)
            time = time + tokens.shape[2]
        forced = TeacherForced(self.embeddings.logits(vectors), weights)
        return forced, (memory, recurrent, attentional, time)

    def _step(self, gates: Tensor, recurrent: Any, attentional: Tensor) -> tuple[Tensor, Any]:
        """The bottom layer's projected embeddings (B, K, gates) -> hidden state, all states."""
        layers: list[Any] = []
        for number, cell in enumerate(self.cells):
            if number > 0:
                gates = cell.known(self.dropout(layers[-1][0]))  # type: ignore[operator]
            before = tuple(part[:, :, number] for part in recurrent)  # (B, K, H) each
            layers.append(cell(gates, attentional, before))  # Read by the bottom layer only.
        states = tuple(torch.stack(parts, dim=2) for parts in zip(*layers, strict=True))
        return layers[-1][0], states

    def _attend(self, hidden: Tensor, memory: Memory, time: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, Q, H) at steps (B, Q), counted from 0 -> h~ (B, Q, H), weights (B, Q, S).

        h~ = tanh(W_c [c; h]), equation 5.
        """
        if self.config.attention == "global":
            attended = self.attention(hidden, memory)
        else:  # The centres (B, Q) of its windows.
            centres = time.float() if self.centre is None else self.centre(hidden, memory)
            attended = self.attention(hidden, memory, centres)
        attentional = torch.tanh(self.combined(torch.cat([attended.context, hidden], dim=-1)))
        return self.dropout(attentional), attended.weights


class GNMT(RecurrentModel):
    """Stacked LSTMs; the bottom decoder layer attends, and all layers are fed its context.

    Sections 3.1 and 3.2. The bottom layer of the encoder reads in both directions. The output of
    the decoder's in the previous step is the query (section 3, equation 4:
    a_i = AttentionFunction(y_(i-1), x)), so that in training only this layer runs step by step.
    Each decoder layer starts from the final state of the encoder layer of the same number, the
    bottom one from the backward direction; the paper does not specify the initial states. From
    layer `residual_from` on, the input of a layer is added to its output (equation 6).

    A state has those of each layer: (B, K, H) of the bottom one, (B, K, 1, H) of the others.
    """

    def __init__(self, config: GNMTConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        embedding, hidden = config.embedding_size, config.hidden_size
        above = range(2, config.layers + 1)
        self.bottom_encoder = RecurrentNetwork("lstm", embedding, hidden, bidirectional=True)
        self.encoders = nn.ModuleList(
            RecurrentNetwork("lstm", hidden if layer > 2 else 2 * hidden, hidden) for layer in above
        )
        self.attention = Attention(AdditiveScore(hidden, hidden, config.attention_size))
        self.bottom_decoder = FedCell("lstm", embedding, hidden, hidden)
        self.decoders = nn.ModuleList(RecurrentNetwork("lstm", 2 * hidden, hidden) for _ in above)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> SourceMemory:
        """Source tokens (B, S) and mask (B, S) -> the top layer's outputs (B, S, H)."""
        embedded = self.embeddings.source(source)
        outputs, final = self.bottom_encoder.encode(embedded, mask)  # (B, S, 2H)
        backward = tuple(part[:, :, 0, self.config.hidden_size :] for part in final)
        initial = [backward]  # The bottom layer: (B, 1, H) each; above (B, 1, 1, H).
        for layer, encoder in enumerate(self.encoders, start=2):
            above, final = encoder.encode(self.dropout(outputs), mask)  # type: ignore[operator]
            outputs = above + outputs if layer >= self.config.residual_from else above  # (B, S, H)
            initial.append(final)
        memory = self.attention.remember(outputs, mask)
        return SourceMemory(memory.values, memory.keys, memory.mask, tuple(initial))

    def run(self, tokens: Tensor, state: State) -> tuple[TeacherForced, State]:
        """Only the bottom layer runs step by step."""
        memory, before, states = state[0], state[1], list(state[2:])
        embedded = self.embeddings.target(tokens)  # (B, K, T, E)
        attended = self.bottom_decoder.attend(self.attention, embedded, before, memory)
        bottom, context, weights = attended
        outputs = torch.stack([hidden for hidden, _ in bottom[1:]], dim=2)  # (B, K, T, H)
        for layer, decoder in enumerate(self.decoders, start=2):
            fed = torch.cat([self.dropout(outputs), context], dim=-1)  # (B, K, T, 2H)
            above, states[layer - 2] = decoder(fed, states[layer - 2])  # (B, K, T, H)
            outputs = above + outputs if layer >= self.config.residual_from else above
        logits = self.embeddings.logits(self.dropout(outputs))  # (B, K, T, V)
        return TeacherForced(logits, weights), (memory, bottom[-1], *states)
