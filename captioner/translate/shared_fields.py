"""Fields and checks that the configs of several translation models share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from captioner.schema import SIZE
from captioner.translate.embeddings import EmbeddingsConfig

Cell = Annotated[Literal["lstm", "gru"], Field(description="kind of recurrent cell")]
EmbeddingSize = Annotated[int, Field(ge=1, le=SIZE, description="E, of a token's embedding")]
HiddenSize = Annotated[int, Field(ge=1, le=SIZE, description="H, of every recurrent layer")]
AttentionSize = Annotated[int, Field(ge=1, le=SIZE, description="A, of the additive score")]
Layers = Annotated[int, Field(ge=1, le=1_000, description="of the encoder, and of the decoder")]
Tie = Annotated[
    Literal["none", "target", "all"],
    Field(
        description="which embeddings and output matrix are one: target, those of the target; "
        "all, the source's as well, which needs a joint vocabulary"
    ),
]
Scale = Annotated[
    bool, Field(description="multiply embeddings by sqrt(E), of use where they are tied")
]


def check_tie(config: EmbeddingsConfig, output_size: int) -> None:
    """Raise `ValueError` where embeddings are tied to an output layer that reads another size."""
    if config.tie_embeddings != "none" and config.embedding_size != output_size:
        raise ValueError(
            f"tie_embeddings {config.tie_embeddings!r} needs an embedding_size of "
            f"{output_size}, what the output layer reads, not {config.embedding_size}"
        )
