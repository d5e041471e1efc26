"""Source and target embeddings and the output layer, which may share one matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.errors import UserError
from captioner.translate.recurrent_config import RecurrentConfig


class Embeddings(nn.Module):
    """Source embeddings, target embeddings and the output layer.

    source_size, target_size: number of tokens of each side. embedding_size: E.
    output_size: input size of the output layer.
    tie: `none`; `target`: the output layer shares the matrix of the target embeddings (Press and
        Wolf 2017, *Using the Output Embedding to Improve Language Models*); or `all`: the source
        embeddings share it too, which needs a joint vocabulary (Vaswani et al. 2017, section 3.4).
    scale: multiply embeddings by sqrt(E), as Vaswani et al. (section 3.4). The rows of a shared
        matrix start with norm 1, which is small for a recurrent network: unscaled, training takes
        twice as many steps.
    dropout: probability on embeddings.

    Raises `UserError` for `all` and sides with different numbers of tokens.
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
        self.sizes = source_size, target_size
        self.factor = math.sqrt(embedding_size) if scale else 1.0
        self.dropout = nn.Dropout(dropout)
        self.target_embedding = _table(target_size, embedding_size)
        self.source_embedding = _table(source_size, embedding_size) if tie != "all" else None
        # A shared matrix is one parameter with one name, so that a saved model holds it once.
        self.output = nn.Linear(output_size, target_size) if tie == "none" else None
        self.output_bias = None if tie == "none" else nn.Parameter(torch.zeros(target_size))
        # Rows shared with the output layer or multiplied by sqrt(E) start with norm 1.
        deviation = embedding_size**-0.5 if scale or tie != "none" else 0.1
        for table in (self.target_embedding, self.source_embedding):
            if table is not None and not table.weight.is_meta:
                nn.init.normal_(table.weight, std=deviation)

    @classmethod
    def of(cls, config: RecurrentConfig, source_size: int, target_size: int) -> Embeddings:
        """Make the embeddings of a model's config."""
        return cls(
            source_size,
            target_size,
            config.embedding_size,
            config.output_layer_size,
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
        """Decoder outputs (..., output size) -> logits (..., V)."""
        if self.output is not None:
            logits: Tensor = self.output(vectors)
            return logits
        return functional.linear(vectors, self.target_embedding.weight, self.output_bias)


def _table(size: int, embedding_size: int) -> nn.Embedding:
    """Embeddings (V, E). On `meta`, drawing weights would make torch import its compiler."""
    if torch.empty(0).is_meta:
        weight = torch.empty(size, embedding_size)
        return nn.Embedding.from_pretrained(weight, freeze=False)  # type: ignore[no-any-return, no-untyped-call]
    return nn.Embedding(size, embedding_size)
