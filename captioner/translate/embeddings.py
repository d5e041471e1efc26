"""Tokens to vectors on both sides, and vectors to tokens: the three that may be one matrix."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.errors import UserError


class EmbeddingsConfig(Protocol):
    """What the configs of models say of embeddings; see `Embeddings`."""

    @property
    def embedding_size(self) -> int:
        """E."""
        ...

    @property
    def tie_embeddings(self) -> str:
        """Which of the three are one matrix."""
        ...

    @property
    def scale_embeddings(self) -> bool:
        """Multiply embeddings by sqrt(E)."""
        ...

    @property
    def dropout(self) -> float:
        """Probability, of the entries of embeddings among others."""
        ...


class Embeddings(nn.Module):
    """The embeddings of source and target, and the output layer.

    source_size, target_size: how many tokens each side has. embedding_size: E.
    output_size: of the vectors that the output layer reads.
    tie: `none`; `target`, the output layer's matrix is that of the target's embeddings (Press and
        Wolf 2017, *Using the Output Embedding to Improve Language Models*); or `all`, the source's
        are the same as well, which needs a vocabulary that both sides share (Vaswani et al. 2017,
        section 3.4).
    scale: multiply embeddings by sqrt(E), as Vaswani et al. do in section 3.4. A matrix that the
        output layer shares begins with rows of norm 1, whose entries are too small for a recurrent
        network to hear: unscaled, it takes twice as many steps to learn the same.
    dropout: probability, of the entries of embeddings.

    Raises `UserError` for sizes that cannot be tied.
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
        if tie == "all" and source_size != target_size:
            raise UserError(
                f"tie_embeddings 'all' needs one vocabulary for both sides, not {source_size} "
                f"tokens on one and {target_size} on the other"
            )
        if tie != "none" and embedding_size != output_size:
            raise UserError(
                f"tie_embeddings {tie!r} needs embeddings of {output_size}, what the output layer "
                f"reads, not {embedding_size}"
            )
        self.sizes = source_size, target_size
        self.factor = math.sqrt(embedding_size) if scale else 1.0
        self.dropout = nn.Dropout(dropout)
        self.target_embedding = _table(target_size, embedding_size)
        self.source_embedding = _table(source_size, embedding_size) if tie != "all" else None
        # What is tied is in the weights once, under one name, and so a saved model has it once.
        self.output = nn.Linear(output_size, target_size) if tie == "none" else None
        self.output_bias = None if tie == "none" else nn.Parameter(torch.zeros(target_size))
        # Read by the output layer too, or multiplied by sqrt(E), rows should have a norm of one.
        deviation = embedding_size**-0.5 if scale or tie != "none" else 0.1
        for table in (self.target_embedding, self.source_embedding):
            if table is not None and not table.weight.is_meta:
                nn.init.normal_(table.weight, std=deviation)

    @classmethod
    def of(
        cls, config: EmbeddingsConfig, source_size: int, target_size: int, output_size: int
    ) -> Embeddings:
        """Those that a model's config asks for."""
        return cls(
            source_size,
            target_size,
            config.embedding_size,
            output_size,
            config.tie_embeddings,
            config.scale_embeddings,
            config.dropout,
        )

    def source(self, tokens: Tensor) -> Tensor:
        """Source tokens (B, S) -> their embeddings (B, S, E)."""
        table = self.target_embedding if self.source_embedding is None else self.source_embedding
        embedded: Tensor = self.dropout(table(tokens) * self.factor)
        return embedded

    def target(self, tokens: Tensor) -> Tensor:
        """Target tokens (...) -> their embeddings (..., E)."""
        embedded: Tensor = self.dropout(self.target_embedding(tokens) * self.factor)
        return embedded

    def logits(self, vectors: Tensor) -> Tensor:
        """What the decoder says (..., output size) -> logits (..., V)."""
        if self.output is not None:
            logits: Tensor = self.output(vectors)
            return logits
        return functional.linear(vectors, self.target_embedding.weight, self.output_bias)


def _table(size: int, embedding_size: int) -> nn.Embedding:
    """Embeddings (V, E). Drawing what has no memory would make torch import its compiler."""
    if torch.empty(0).is_meta:
        weight = torch.empty(size, embedding_size)
        return nn.Embedding.from_pretrained(weight, freeze=False)  # type: ignore[no-any-return, no-untyped-call]
    return nn.Embedding(size, embedding_size)
