"""The options that the recurrent translation models share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.schema import SIZE, Config

Cell = Annotated[Literal["lstm", "gru"], Field(description="kind of recurrent cell")]
AttentionSize = Annotated[int, Field(ge=1, le=SIZE, description="A, of the additive score")]
Layers = Annotated[int, Field(ge=1, le=1_000, description="of the encoder, and of the decoder")]
Tie = Annotated[
    Literal["none", "target", "all"],
    Field(
        description="which embeddings and output matrix are one: target, those of the target; "
        "all, the source's as well, which needs a joint vocabulary"
    ),
]


class RecurrentConfig(Config):
    """Sizes and options of a recurrent model."""

    embedding_size: int = Field(512, ge=1, le=SIZE, description="E, of a token's embedding")
    hidden_size: int = Field(512, ge=1, le=SIZE, description="H, of every recurrent layer")
    tie_embeddings: Tie = "none"
    scale_embeddings: bool = Field(
        False, description="multiply embeddings by sqrt(E), of use where they are tied"
    )
    dropout: float = Field(
        0.3, ge=0, lt=1, description="on embeddings, between layers and before the output layer"
    )

    @property
    def output_layer_size(self) -> int:
        """The size of the vectors that the output layer reads."""
        return self.hidden_size

    @model_validator(mode="after")
    def _check_tie(self) -> Self:
        size = self.output_layer_size
        if self.tie_embeddings != "none" and self.embedding_size != size:
            raise ValueError(
                f"tie_embeddings {self.tie_embeddings!r} needs an embedding_size of {size}, what "
                f"the output layer reads, not {self.embedding_size}"
            )
        return self
