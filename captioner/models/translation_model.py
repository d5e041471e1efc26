"""Embeddings, recurrent networks, base class and loss of all translation models."""

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from captioner import cpu
from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.decoding.protocol import SequenceDecoder
from captioner.errors import UserError
from captioner.models.cross_entropy import cross_entropies
from captioner.module_weights import empty_embedding
from captioner.schema import Fraction, Section
from captioner.text.token_batches import TranslationBatch


class Embeddings(nn.Module):
    """Source embeddings, target embeddings and the output layer.

    source_size, target_size: V of each side. embedding_size: E.
    output_size: of the vectors that the output layer reads.
    tie: `none`; `target`: the output layer shares the matrix of the target embeddings (Press and
        Wolf 2017, *Using the Output Embedding to Improve Language Models*); or `all`: the source
        embeddings share it too (Vaswani et al. 2017, section 3.4).
    scale: multiply embeddings by sqrt(E) (section 3.4). Unscaled, a recurrent network with a shared
        matrix, whose rows start with norm 1, trains for twice as many steps.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        embedding_size: int,
        output_size: int,
        tie: str = "none",
        scale: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        shapes = [(target_size, embedding_size), (target_size, output_size)]
        if tie == "all":
            shapes.append((source_size, embedding_size))
        if tie != "none" and len(set(shapes)) > 1:
            shown = f"those of target, output and source differ: {', '.join(map(str, shapes))}"
            raise UserError(f"tie_embeddings {tie!r} shares one matrix, but {shown}")
        self.factor = math.sqrt(embedding_size) if scale else 1.0
        self.dropout = cpu.Dropout(dropout)
        is_meta = torch.empty(0).is_meta  # There drawing weights would import torch's compiler.
        make = empty_embedding if is_meta else nn.Embedding
        self.target_embedding = make(target_size, embedding_size)
        self.source_embedding = make(source_size, embedding_size) if tie != "all" else None
        # A shared matrix is one parameter with one name, so that a saved model holds it once.
        self.output: nn.Module | None
        self.output = nn.Linear(output_size, target_size) if tie == "none" else None
        self.output_bias = None if tie == "none" else nn.Parameter(torch.zeros(target_size))
        deviation = embedding_size**-0.5 if scale or tie != "none" else 0.1  # The first: norm 1.
        for table in (self.target_embedding, self.source_embedding):
            if table is not None and not is_meta:
                nn.init.normal_(table.weight, std=deviation)

    def pack(self) -> None:
        """Pack the shared matrix of a finished model for `logits`; see `captioner.cpu.pack`."""
        if self.output is None and cpu.is_packable(self.target_embedding.weight):
            self.output = cpu.PackedLinear(self.target_embedding.weight, self.output_bias)

    def source(self, tokens: Tensor) -> Tensor:
        """Source tokens (B, S) -> their embeddings (B, S, E)."""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        return self.dropout(table(tokens) * self.factor)  # type: ignore[no-any-return]

    def target(self, tokens: Tensor) -> Tensor:
        """Target tokens (...) -> their embeddings (..., E)."""
        return self.dropout(self.target_embedding(tokens) * self.factor)  # type: ignore[no-any-return]

    def logits(self, vectors: Tensor) -> Tensor:
        """Decoder outputs (..., output size) -> logits (..., V)."""
        if self.output is None:
            return functional.linear(vectors, self.target_embedding.weight, self.output_bias)
        return self.output(vectors)  # type: ignore[no-any-return]


RecurrentState = tuple[Tensor, ...]
"""State of a recurrent network: (hidden,) of a GRU, (hidden, cell) of an LSTM."""


class RecurrentNetwork(nn.Module):
    """torch's GRU or LSTM of several layers, run in the type of its weights.

    kind: `gru` or `lstm`. dropout: probability between layers.
    """

    def __init__(
        self,
        kind: str,
        input_size: int,
        hidden_size: int,
        layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        make = nn.GRU if kind == "gru" else nn.LSTM
        self.network = make(
            input_size,
            hidden_size,
            layers,
            batch_first=True,
            dropout=dropout if layers > 1 else 0.0,
            bidirectional=bidirectional,
        )

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Decode: inputs (B, K, T, I), states (B, K, layers, H) -> outputs (B, K, T, H), states."""
        rows = inputs.shape[:2]
        before = tuple(part.flatten(end_dim=1).transpose(0, 1).contiguous() for part in state)
        outputs, after = self._run(inputs.flatten(end_dim=1), before)  # (B * K, T, H)
        states = tuple(part.transpose(0, 1).reshape(*rows, len(part), -1) for part in after)
        return outputs.view(*inputs.shape[:3], -1), states  # (B, K, T, H), (B, K, layers, H) each

    def encode(self, embedded: Tensor, mask: Tensor | None = None) -> tuple[Tensor, RecurrentState]:
        """Embeddings (B, S, E), mask (B, S) -> outputs (B, S, D), final states (B, 1, layers, D).

        D is H, or 2H in both directions, the forward half first. Padding follows the tokens and has
        no effect: each direction starts and ends at the tokens, and outputs at padding are 0. Torch
        raises `RuntimeError` for a source without tokens.
        """
        if mask is None:
            mask = torch.ones(embedded.shape[:2], dtype=torch.bool)
        # Sorted here: torch's own sorting reads the order back from the GPU.
        lengths, order = mask.sum(dim=1).cpu().sort(descending=True, stable=True)  # (B,)
        order = order.to(embedded.device, non_blocking=True)
        embedded = embedded.index_select(0, order)
        back = order.argsort()
        outputs, final = self._run(pack_padded_sequence(embedded, lengths, batch_first=True))
        outputs, _ = pad_packed_sequence(outputs, True, total_length=embedded.shape[1])
        states = tuple(self._by_source(part.index_select(1, back)) for part in final)
        return outputs.index_select(0, back), states  # (B, S, D), (B, 1, layers, D) each

    def _by_source(self, states: Tensor) -> Tensor:
        """Final states (layers * directions, B, H) -> (B, 1, layers, D)."""
        by_layer = states.view(self.network.num_layers, -1, *states.shape[1:])
        return by_layer.permute(2, 0, 1, 3).flatten(start_dim=2).unsqueeze(1)

    def _run(self, inputs: Any, state: RecurrentState | None = None) -> tuple[Any, RecurrentState]:
        """A tensor or `PackedSequence`, states (layers, B, H) -> outputs and states.

        Without autocast: it casts cuDNN's recurrent networks to float16 in any case, and gradients
        vanish; oneDNN has no LSTM in bfloat16 for CPUs without AVX-512, and fails.
        """
        weight = next(self.network.parameters())
        before: Any = state and tuple(part.to(weight.dtype) for part in state)
        if before and isinstance(self.network, nn.GRU):
            (before,) = before
        with torch.autocast(weight.device.type, enabled=False):
            outputs, after = self.network(inputs.to(weight.dtype), before)
        return outputs, after if isinstance(after, tuple) else (after,)


class FedCell(nn.Module):
    """A GRU or LSTM cell with a precomputed input projection and a recurrent context input.

    `known` projects known inputs (embeddings) of all steps in one product: (..., I) to their part
    of the gates (..., 3H or 4H), in torch's order. Contexts are projected step by step.

    kind: `gru` or `lstm`. known_size: I. fed_size: F of the context input, or 0.
    """

    def __init__(self, kind: str, known_size: int, fed_size: int, hidden_size: int) -> None:
        super().__init__()
        gates = 3 if kind == "gru" else 4
        self.kind = kind
        self.known = nn.Linear(known_size, gates * hidden_size)
        self.fed = nn.Linear(fed_size, gates * hidden_size, bias=False) if fed_size else None
        self.hidden = nn.Linear(hidden_size, gates * hidden_size)
        with torch.no_grad():
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)
            if kind == "lstm":
                self.known.bias[hidden_size : 2 * hidden_size] = 1.0  # An open forget gate.

    def forward(self, gates: Tensor, fed: Tensor | None, state: RecurrentState) -> RecurrentState:
        """A step's projected input (..., gates), context (..., F), states (..., H) -> states."""
        if self.fed is not None:
            gates = gates + self.fed(fed)
        recurrent = self.hidden(state[0])  # (..., gates)
        if self.kind == "gru":
            reset, update, candidate = gates.chunk(3, dim=-1)  # (..., H) each
            recurrent_reset, recurrent_update, recurrent_candidate = recurrent.chunk(3, dim=-1)
            reset = torch.sigmoid(reset + recurrent_reset)
            update = torch.sigmoid(update + recurrent_update)
            candidate = torch.tanh(candidate + reset * recurrent_candidate)
            # Not `torch.lerp`: under autocast the types differ.
            return (candidate + update * (state[0] - candidate),)
        input_gate, forget_gate, candidate, output_gate = (gates + recurrent).chunk(4, dim=-1)
        cell = torch.sigmoid(forget_gate) * state[1]
        cell = cell + torch.sigmoid(input_gate) * torch.tanh(candidate)  # (..., H)
        return torch.sigmoid(output_gate) * torch.tanh(cell), cell

    def attend(
        self, attention: Attention, known: Tensor, state: RecurrentState, memory: Memory
    ) -> tuple[list[RecurrentState], Tensor, Tensor]:
        """Run step by step; the context of each step is attended to by the state before it.

        Known inputs (B, K, T, I), states (B, K, H) -> these and the T next states, contexts
        (B, K, T, F) and weights (B, K, T, S).
        """
        states = [state]
        contexts = []
        weights = []
        for gates in self.known(known).unbind(dim=2):  # (B, K, gates)
            attended = attention(states[-1][0], memory)
            states.append(self(gates, attended.context, states[-1]))
            contexts.append(attended.context)
            weights.append(attended.weights)
        return states, torch.stack(contexts, dim=2), torch.stack(weights, dim=2)


class TranslationModel(SequenceDecoder):
    """Encoder, memory and decoder. A subclass implements `remember`, `start` and `run`."""

    embeddings: Embeddings

    @abstractmethod
    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Encode source tokens (B, S), `<end>` last, with their mask (B, S), as a memory.

        The mask is False at padding, which follows the tokens; None means no padding. It may stay
        on the CPU: recurrent encoders read lengths from it. A source without tokens is an error.
        """


class TranslationObjective(Section):
    """The training objective."""

    label_smoothing: Fraction = 0.0
    """probability spread over all words (Szegedy et al. 2016); the paper: 0.1"""


class TranslationLoss(nn.Module):
    """Cross-entropy of reference translations, for every model."""

    def __init__(
        self, translation_model: TranslationModel, objective: TranslationObjective | None = None
    ) -> None:
        super().__init__()
        self.translation_model = translation_model
        self.objective = objective or TranslationObjective()

    def loss(self, batch: TranslationBatch) -> dict[str, Tensor]:
        """The loss of a batch, a mean over target tokens with `<end>`, in nats.

        `loss` is optimised; `cross_entropy` is the same without label smoothing.
        """
        memory = self.translation_model.remember(batch.source, batch.source_mask)
        outputs = self.translation_model(memory, batch.inputs.unsqueeze(1))  # one row a source
        logits = outputs.logits.squeeze(1)  # (B, T, V)
        tokens = batch.mask.sum().clamp(min=1)
        smoothing = self.objective.label_smoothing
        smoothed, plain = cross_entropies(logits, batch.targets, batch.mask, smoothing)
        return {"loss": smoothed.sum() / tokens, "cross_entropy": plain.sum() / tokens}
