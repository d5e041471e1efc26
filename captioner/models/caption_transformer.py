"""A Transformer as the caption decoder: attends to annotation vectors.

Vaswani et al. 2017, *Attention Is All You Need*, section 3.
"""

from torch import Tensor, nn

from captioner import cpu
from captioner.attention.memory import Memory
from captioner.attention.transformer import (
    DecoderStack,
    LayerSizes,
    StackState,
    sinusoidal_positions,
)
from captioner.decoding.protocol import SequenceDecoder, TeacherForced
from captioner.models.caption_config import TransformerDecoderConfig
from captioner.models.caption_decoder import CaptionDecoder
from captioner.module_weights import empty_embedding


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
        self.output = nn.Linear(size, vocabulary_size)
        self.dropout = cpu.Dropout(config.dropout)
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
        logits = self.output(self.norm(vectors)).view(*tokens.shape, -1)  # (B, K, T, V)
        return TeacherForced(logits, weights.mean(dim=1)), state  # weights (B, K, T, L)
