"""The base class of translation models, their embeddings and their loss."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from captioner import cpu
from captioner.attention.memory import Memory
from captioner.decoding.protocol import SequenceDecoder, cross_entropies
from captioner.errors import UserError
from captioner.schema import Config, Fraction
from captioner.text.token_batches import TranslationBatch

Tie = Annotated[
    Literal["none", "target", "all"],
    Field(description="target: output and target embeddings are one matrix; all: source too"),
]


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
        self.dropout = nn.Dropout(dropout)
        self.target_embedding = _table(target_size, embedding_size)
        self.source_embedding = _table(source_size, embedding_size) if tie != "all" else None
        # A shared matrix is one parameter with one name, so that a saved model holds it once.
        self.output = cpu.Linear(output_size, target_size) if tie == "none" else None
        self.output_bias = None if tie == "none" else nn.Parameter(torch.zeros(target_size))
        deviation = embedding_size**-0.5 if scale or tie != "none" else 0.1  # The first: norm 1.
        for table in (self.target_embedding, self.source_embedding):
            if table is not None and not table.weight.is_meta:
                nn.init.normal_(table.weight, std=deviation)

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
            return cpu.linear(vectors, self.target_embedding.weight, self.output_bias)
        return self.output(vectors)  # type: ignore[no-any-return]


def _table(size: int, embedding_size: int) -> nn.Embedding:
    """Embeddings (V, E). On `meta`, drawing weights would make torch import its compiler."""
    if torch.empty(0).is_meta:
        weight = torch.empty(size, embedding_size)
        return nn.Embedding.from_pretrained(weight, freeze=False)  # type: ignore[no-any-return, no-untyped-call]
    return nn.Embedding(size, embedding_size)


class TranslationModel(SequenceDecoder):
    """Encoder, memory and decoder. A subclass implements `remember`, `start` and `run`."""

    embeddings: Embeddings

    @abstractmethod
    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Encode source tokens (B, S), `<end>` last, with their mask (B, S), as a memory.

        The mask is False at padding, which follows the tokens; None means no padding. It may stay
        on the CPU: recurrent encoders read lengths from it. A source without tokens is an error.
        """


class TranslationObjective(Config):
    """The training objective."""

    label_smoothing: Fraction = Field(
        0.0, description="probability spread over all words (Szegedy et al. 2016); the paper: 0.1"
    )


class TranslationLoss(nn.Module):
    """Cross-entropy of reference translations, for every model."""

    def __init__(
        self, translation_model: TranslationModel, objective: TranslationObjective | None = None
    ) -> None:
        super().__init__()
        self.translation_model = translation_model
        self.objective = objective or TranslationObjective()

    def loss(self, batch: TranslationBatch) -> dict[str, Tensor]:
        """Mean over target tokens, including `<end>`, in nats: `loss`, which is optimised, and
        `cross_entropy`, without label smoothing."""
        memory = self.translation_model.remember(batch.source, batch.source_mask)
        outputs = self.translation_model(memory, batch.inputs.unsqueeze(1))  # one row a source
        logits = outputs.logits.squeeze(1)  # (B, T, V)
        tokens = batch.mask.sum().clamp(min=1)
        smoothing = self.objective.label_smoothing
        smoothed, plain = cross_entropies(logits, batch.targets, batch.mask, smoothing)
        return {"loss": smoothed.sum() / tokens, "cross_entropy": plain.sum() / tokens}
