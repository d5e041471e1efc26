"""A Transformer as the caption decoder: attends to annotation vectors.

Vaswani et al. 2017, *Attention Is All You Need*, section 3.
"""

from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from captioner import cpu
from captioner.attention.memory import Memory
from captioner.attention.transformer import (
    DecoderStack,
    LayerSizes,
    StackState,
    sinusoidal_positions,
)
from captioner.caption.base import CaptionDecoder, CaptionDecoderConfig
from captioner.decoding.protocol import SequenceDecoder, TeacherForced
from captioner.devices import empty_embedding
from captioner.schema import Fraction, Size


class TransformerDecoderConfig(CaptionDecoderConfig):
    """Sizes and options of a `TransformerDecoder`."""

    kind: Literal["transformer"] = Field("transformer", description="decoder type: transformer")
    embedding_size: Size = Field(512, description="H of everything; even")
    heads: int = Field(8, ge=1, le=1_000, description="N, a divisor of embedding_size")
    inner_size: Size = Field(2048, description="hidden size of the feed-forward networks")
    layers: int = Field(3, ge=1, le=100, description="decoder layers")
    map_layer: int = Field(
        -1,
        ge=-1_000,
        lt=1_000,
        description="layer whose mean attention is a word's map, from 0; below 0 from the last",
    )
    selection: Literal["soft", "hard"] = Field("soft", description="soft only")
    dropout: Fraction = Field(0.1, description="on embeddings, attention weights and in the layers")

    @model_validator(mode="after")
    def _check(self) -> Self:
        size = self.embedding_size
        if size % 2 or size % self.heads:
            needed = f"not even and a multiple of {self.heads} heads"
            raise ValueError(f"embedding_size {size} is {needed}")
        if self.selection == "hard":
            raise ValueError("selection 'hard' is for kind lstm, and kind is transformer")
        if not -self.layers <= self.map_layer < self.layers:
            raise ValueError(f"map_layer {self.map_layer} is not one of the {self.layers} layers")
        return self


class TransformerDecoder(SequenceDecoder, CaptionDecoder):
    """Pre-norm Transformer layers over projected annotation vectors."""

    config: TransformerDecoderConfig

    def __init__(self, config: TransformerDecoderConfig, vocabulary_size: int) -> None:
        super().__init__(config)
        size = config.embedding_size
        sizes = LayerSizes(
            size=size,
            heads=config.heads,
            inner_size=config.inner_size,
            norm_first=True,
            dropout=config.dropout,
            inner_dropout=config.dropout,
        )
        self.embedding = empty_embedding(vocabulary_size, size)
        self.annotation = nn.Linear(config.memory_size, size)
        self.annotation_norm = nn.LayerNorm(size)
        self.stack = DecoderStack(sizes, config.layers)
        self.norm = nn.LayerNorm(size)
        self.output = cpu.Linear(size, vocabulary_size)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)  # The scale of positions.
        for parameter in self.stack.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def remember(self, annotations: Tensor) -> Memory:
        """Annotation vectors (B, L, D) -> projections (B, L, H), of which `start` makes keys."""
        projected = self.annotation_norm(self.annotation(self.standardised(annotations)))
        return Memory(projected, projected)  # (B, L, H)

    def start(self, memory: Memory) -> StackState:
        """A memory of B sources -> the state before the first word."""
        return self.stack.start(memory)

    def run(self, tokens: Tensor, state: StackState) -> tuple[TeacherForced, StackState]:
        """The T newest words (B, K, T) and the state before them -> outputs and the next state."""
        embedded = self.embedding(tokens)  # (B, K, T, H)
        positions = sinusoidal_positions(state.length, tokens.shape[-1], embedded)  # (T, H)
        vectors = self.dropout(embedded + positions)  # (B, K, T, H)
        vectors, weights, state = self.stack(vectors, state, self.config.map_layer)
        logits = self.output(self.norm(vectors))  # (B, K, T, V)
        return TeacherForced(logits, weights.mean(dim=1)), state  # weights (B, K, T, L)
