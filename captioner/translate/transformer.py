"""The Transformer: encoder and decoder of self-attention, decoded with cached keys.

Vaswani et al. 2017, *Attention Is All You Need*.
"""

from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from captioner.attention.memory import Memory, checked_mask
from captioner.attention.transformer import (
    DecoderStack,
    EncoderLayer,
    LayerSizes,
    StackState,
    sinusoidal_positions,
)
from captioner.decoding.protocol import TeacherForced
from captioner.schema import Config, Fraction, Size
from captioner.translate.model import Embeddings, Tie, TranslationModel


class TransformerConfig(Config):
    """Sizes and options of a `Transformer`."""

    embedding_size: Size = Field(512, description="H of everything, d_model of the paper; even")
    heads: int = Field(8, ge=1, le=1_000, description="N, a divisor of embedding_size")
    inner_size: Size = Field(2048, description="of the feed-forward networks")
    encoder_layers: int = Field(6, ge=1, le=100, description="layers of the encoder")
    decoder_layers: int = Field(6, ge=1, le=100, description="layers of the decoder")
    norm_first: bool = Field(
        True, description="pre-norm, which needs no warm-up (Xiong et al. 2020); false: post-norm"
    )
    final_norm: bool = Field(
        True, description="one more norm behind each stack: pre-norm needs it, the paper has none"
    )
    tie_embeddings: Tie = "target"
    dropout: Fraction = Field(0.1, description="on embeddings and on each sublayer's output")
    inner_dropout: float | None = Field(
        None, ge=0, lt=1, description="on attention weights and in the networks; null: as dropout"
    )
    alignment_layer: int = Field(
        -1, ge=-1_000, lt=1_000, description="decoder layer of the alignment, from 0; -1: the last"
    )
    alignment_head: int | None = Field(
        None, ge=0, lt=1_000, description="one head of that layer; the mean of all by default"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        size, heads, layers = self.embedding_size, self.heads, self.decoder_layers
        if size % 2 or size % heads:
            raise ValueError(f"embedding_size {size} is odd or not divisible among {heads} heads")
        if not -layers <= self.alignment_layer < layers:
            wrong = f"alignment_layer {self.alignment_layer}"
            raise ValueError(f"{wrong} is not one of {layers} decoder layers, counted from 0")
        if (self.alignment_head or 0) >= heads:
            wrong = f"alignment_head {self.alignment_head}"
            raise ValueError(f"{wrong} is not one of {heads} heads, counted from 0")
        return self


class Transformer(TranslationModel):
    """Encoder and decoder of self-attention; its alignment may be changed at any time."""

    def __init__(self, config: TransformerConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        self.config = config
        size = config.embedding_size
        inner = config.inner_dropout
        sizes = LayerSizes(
            size=size,
            heads=config.heads,
            inner_size=config.inner_size,
            norm_first=config.norm_first,
            dropout=config.dropout,
            inner_dropout=config.dropout if inner is None else inner,
        )
        self.embeddings = Embeddings(
            source_size,
            target_size,
            embedding_size=size,
            output_size=size,
            tie=config.tie_embeddings,
            scale=True,
        )
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(config.encoder_layers))
        self.decoder = DecoderStack(sizes, config.decoder_layers)
        self.encoder_norm = nn.LayerNorm(size) if config.final_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size) if config.final_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and not name.startswith("embeddings."):
                nn.init.xavier_uniform_(parameter)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Source tokens (B, S) and mask (B, S) -> the encoder's outputs (B, S, H).

        Keys equal values: each decoder layer projects its own keys in `start`.
        """
        mask = checked_mask(mask, source.device)
        vectors = self._add_positions(self.embeddings.source(source), 0)  # (B, S, H)
        for layer in self.encoder:
            vectors = layer(vectors, mask)
        outputs = self.encoder_norm(vectors)
        return Memory(outputs, outputs, mask)

    def start(self, memory: Memory) -> StackState:
        """Project keys and values of the source for each layer; the cache is empty."""
        return self.decoder.start(memory)

    def run(self, tokens: Tensor, state: StackState) -> tuple[TeacherForced, StackState]:
        """See `SequenceDecoder.run`; one pass with a causal mask."""
        vectors = self._add_positions(self.embeddings.target(tokens), state.length)
        vectors, weights, state = self.decoder(vectors, state, self.config.alignment_layer)
        head = self.config.alignment_head
        alignment = weights.mean(dim=1) if head is None else weights[:, head]  # (B, K, T, S)
        logits = self.embeddings.logits(self.decoder_norm(vectors))  # (B, K, T, V)
        return TeacherForced(logits, alignment), state

    def _add_positions(self, embedded: Tensor, first: int | Tensor) -> Tensor:
        """Add encodings of the positions from `first` to embeddings (..., T, H)."""
        positions = sinusoidal_positions(first, embedded.shape[-2], embedded)  # (T, H)
        return self.dropout(embedded + positions)  # type: ignore[no-any-return]
