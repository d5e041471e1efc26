"""The Transformer: encoder and decoder of self-attention, decoded with cached keys.

Vaswani et al. 2017, *Attention Is All You Need*.
"""

from torch import Tensor, nn

from captioner import cpu
from captioner.attention.memory import Memory, checked_mask
from captioner.attention.transformer import (
    DecoderStack,
    EncoderLayer,
    LayerSizes,
    StackState,
    sinusoidal_positions,
)
from captioner.decoding.protocol import TeacherForced
from captioner.models.translation_config import TransformerConfig
from captioner.models.translation_model import Embeddings, TranslationModel


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
        tie = config.tie_embeddings
        self.embeddings = Embeddings(source_size, target_size, size, size, tie, scale=True)
        self.encoder = nn.ModuleList(EncoderLayer(sizes) for _ in range(config.encoder_layers))
        self.decoder = DecoderStack(sizes, config.decoder_layers)
        norm = nn.LayerNorm if config.final_norm else nn.Identity
        self.encoder_norm, self.decoder_norm = norm(size), norm(size)
        self.dropout = cpu.Dropout(config.dropout)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and not name.startswith("embeddings."):
                nn.init.xavier_uniform_(parameter)

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Source tokens (B, S) and mask (B, S) -> the encoder's outputs (B, S, H).

        Keys equal values: each decoder layer projects its own keys in `start`.
        """
        mask = checked_mask(mask, source.device)
        embedded = self._add_positions(self.embeddings.source(source), 0)  # (B, S, H)
        vectors = embedded.flatten(end_dim=1)  # (B * S, H)
        for layer in self.encoder:
            vectors = layer(vectors, mask, source.shape[0])
        outputs = self.encoder_norm(vectors).view(embedded.shape)  # (B, S, H)
        return Memory(outputs, outputs, mask)

    def start(self, memory: Memory) -> StackState:
        """Project keys and values of the source for each layer; the cache is empty."""
        return self.decoder.start(memory)

    def run(self, tokens: Tensor, state: StackState) -> tuple[TeacherForced, StackState]:
        """One pass with a causal mask."""
        vectors = self._add_positions(self.embeddings.target(tokens), state.length)
        vectors, weights, state = self.decoder(vectors, state, self.config.alignment_layer)
        head = self.config.alignment_head
        alignment = weights.mean(dim=1) if head is None else weights[:, head]  # (B, K, T, S)
        logits = self.embeddings.logits(self.decoder_norm(vectors))  # (B * K * T, V)
        return TeacherForced(logits.view(*tokens.shape, -1), alignment), state

    def _add_positions(self, embedded: Tensor, first: int | Tensor) -> Tensor:
        """Add encodings of the positions from `first` to embeddings (..., T, H)."""
        positions = sinusoidal_positions(first, embedded.shape[-2], embedded)  # (T, H)
        return self.dropout(embedded + positions)  # type: ignore[no-any-return]
