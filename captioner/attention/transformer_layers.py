"""The layers of a Transformer: multi-head attention, feed-forward networks and norms.

Vaswani et al. 2017, *Attention Is All You Need*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from captioner.attention.memory import Memory
from captioner.attention.multi_head import MultiHeadAttention


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, at each position. Section 3.3.

    size: H. inner_size: of the hidden layer. dropout: probability on the hidden layer.
    """

    def __init__(self, size: int, inner_size: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(size, inner_size)
        self.outer = nn.Linear(inner_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., H) -> (..., H)."""
        outputs: Tensor = self.outer(self.dropout(functional.relu(self.inner(vectors))))
        return outputs


class Sublayer(nn.Module):
    """Residual connection, norm and dropout around a part of a layer.

    norm_first: x + f(norm(x)) (pre-norm, Xiong et al. 2020, *On Layer Normalization in the
    Transformer Architecture*, figure 1), or norm(x + f(x)) (post-norm, as in the paper).
    """

    def __init__(self, size: int, norm_first: bool, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Vectors (..., H) and a part that keeps their shape -> (..., H)."""
        outputs: Tensor
        if self.norm_first:
            outputs = vectors + self.dropout(part(self.norm(vectors)))
        else:
            outputs = self.norm(vectors + self.dropout(part(vectors)))
        return outputs


@dataclass(frozen=True)
class LayerParts:
    """Makes the parts of a layer, all of the same sizes.

    size: H. heads: N. inner_size: of `FeedForward`. norm_first: of `Sublayer`. dropout:
    probability on the output of each part; inner_dropout: on attention weights and inside
    `FeedForward`.
    """

    size: int
    heads: int
    inner_size: int
    norm_first: bool
    dropout: float
    inner_dropout: float

    def attention(self) -> MultiHeadAttention:
        """Make multi-head attention from H to H."""
        return MultiHeadAttention(self.size, self.size, self.heads, dropout=self.inner_dropout)

    def feed_forward(self) -> FeedForward:
        """Make a feed-forward network."""
        return FeedForward(self.size, self.inner_size, self.inner_dropout)

    def around(self) -> Sublayer:
        """Make the residual connection around a part."""
        return Sublayer(self.size, self.norm_first, self.dropout)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then a feed-forward network. Section 3.1."""

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.attention()
        self.feed_forward = parts.feed_forward()
        self.around_attention = parts.around()
        self.around_network = parts.around()

    def forward(self, vectors: Tensor, mask: Tensor | None) -> Tensor:
        """Source vectors (B, S, H) and their mask (B, S) -> (B, S, H)."""

        def attend(normed: Tensor) -> Tensor:
            memory = self.self_attention.remember(normed, mask)
            return self.self_attention.context(normed, memory)

        vectors = self.around_attention(vectors, attend)
        outputs: Tensor = self.around_network(vectors, self.feed_forward)
        return outputs


class DecoderLayerOutput(NamedTuple):
    """Output of a decoder layer.

    vectors: (B, K, T, H). weights: (B, N, K, T, S), attention over the source, None where they are
    not asked for. cache: keys and values of all target tokens so far, (B, N, M, H / N).
    """

    vectors: Tensor
    weights: Tensor | None
    cache: Memory


class DecoderLayer(nn.Module):
    """Self-attention over the target, attention over the source, feed-forward. Section 3.1."""

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.attention()
        self.cross_attention = parts.attention()
        self.feed_forward = parts.feed_forward()
        self.around_attention = parts.around()
        self.around_cross = parts.around()
        self.around_network = parts.around()

    def forward(
        self,
        vectors: Tensor,
        source: Memory,
        cache: Memory | None,
        mask: Tensor,
        needs_weights: bool,
    ) -> DecoderLayerOutput:
        """Vectors of the T newest tokens (B, K, T, H) -> `DecoderLayerOutput`.

        source: `cross_attention.remember` of the encoder's outputs, of B sources.
        cache: keys and values of the earlier tokens of all rows, None before the first.
        mask: (B, 1, K * T, M), the tokens each of the newest may attend to, of all M.
        """
        rows, steps = vectors.shape[1:3]
        extended: Memory | None = None
        weights: Tensor | None = None

        def attend_self(normed: Tensor) -> Tensor:
            nonlocal extended
            flat = normed.flatten(1, 2)  # (B, K * T, H)
            newest = self.self_attention.remember(flat)
            extended = newest if cache is None else cache.extended(newest)  # (B, N, M, H / N)
            context = self.self_attention.context(flat, extended, mask)  # (B, K * T, H)
            return context.view(normed.shape)  # (B, K, T, H)

        def attend_source(normed: Tensor) -> Tensor:
            nonlocal weights
            flat = normed.flatten(1, 2)  # (B, K * T, H)
            if not needs_weights:
                return self.cross_attention.context(flat, source).view(normed.shape)
            attended = self.cross_attention(flat, source)
            weights = attended.weights.unflatten(2, (rows, steps))  # (B, N, K, T, S)
            context: Tensor = attended.context  # (B, K * T, H)
            return context.view(normed.shape)  # (B, K, T, H)

        vectors = self.around_attention(vectors, attend_self)
        vectors = self.around_cross(vectors, attend_source)
        vectors = self.around_network(vectors, self.feed_forward)
        assert extended is not None
        return DecoderLayerOutput(vectors, weights, extended)
