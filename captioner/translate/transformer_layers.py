"""The layers of a Transformer: attention from the shared core, a network for each place, norms.

Vaswani et al. 2017, *Attention Is All You Need*, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from captioner.attention import Memory, MultiHeadAttention


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, at each place alone. Section 3.3.

    size: H. inner_size: of the layer between. dropout: probability, on that layer.
    """

    def __init__(self, size: int, inner_size: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(size, inner_size)
        self.outer = nn.Linear(inner_size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., H) -> (..., H)."""
        found: Tensor = self.outer(self.dropout(functional.relu(self.inner(vectors))))
        return found


class Sublayer(nn.Module):
    """What stands around each part of a layer: a residual connection, a norm, dropout.

    norm_first: x + f(norm(x)) (pre-norm, Xiong et al. 2020, *On Layer Normalization in the
    Transformer Architecture*, figure 1), or norm(x + f(x)) (post-norm, as in the paper).
    """

    def __init__(self, size: int, norm_first: bool, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Vectors (..., H) and a part of a layer, which keeps their shape -> (..., H)."""
        found: Tensor
        if self.norm_first:
            found = vectors + self.dropout(part(self.norm(vectors)))
        else:
            found = self.norm(vectors + self.dropout(part(vectors)))
        return found


@dataclass(frozen=True)
class LayerParts:
    """Makes the parts of a layer, all of the same sizes.

    size: H. heads: N. inner_size: of the network. norm_first: as of `Sublayer`. dropout:
    probability, on what each part gives; inner_dropout: on weights, and inside the network.
    """

    size: int
    heads: int
    inner_size: int
    norm_first: bool
    dropout: float
    inner_dropout: float

    def attention(self) -> MultiHeadAttention:
        """Attention from H to H."""
        return MultiHeadAttention(self.size, self.size, self.heads, dropout=self.inner_dropout)

    def feed_forward(self) -> FeedForward:
        """The network at each place."""
        return FeedForward(self.size, self.inner_size, self.inner_dropout)

    def around(self) -> Sublayer:
        """What stands around one of these."""
        return Sublayer(self.size, self.norm_first, self.dropout)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then a network at each place. Section 3.1."""

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.attention()
        self.feed_forward = parts.feed_forward()
        self.around_attention = parts.around()
        self.around_network = parts.around()

    def forward(self, vectors: Tensor, mask: Tensor | None) -> Tensor:
        """Source vectors (B, S, H) and their mask (B, S) -> (B, S, H)."""

        def attend(normed: Tensor) -> Tensor:
            found = self.self_attention(normed, self.self_attention.remember(normed, mask))
            context: Tensor = found.context
            return context

        vectors = self.around_attention(vectors, attend)
        found: Tensor = self.around_network(vectors, self.feed_forward)
        return found


class Looked(NamedTuple):
    """What a decoder layer gives.

    vectors: (B, K, T, H). weights: (B, N, K, T, S), of its looks at the source. seen: keys and
    values of what it may look at of its own side from now on, (B * K, N, t, H / N).
    """

    vectors: Tensor
    weights: Tensor
    seen: Memory


class DecoderLayer(nn.Module):
    """Self-attention over what was said, attention over the source, a network. Section 3.1."""

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.attention()
        self.cross_attention = parts.attention()
        self.feed_forward = parts.feed_forward()
        self.around_attention = parts.around()
        self.around_cross = parts.around()
        self.around_network = parts.around()

    def forward(
        self, vectors: Tensor, source: Memory, seen: Memory | None, mask: Tensor | None
    ) -> Looked:
        """Vectors of the T newest tokens (B, K, T, H) -> `Looked`.

        source: `cross_attention.remember` of what the encoder gave, of B sources.
        seen: keys and values of the tokens before these, or None before the first.
        mask: what each of the T may see of all there are, (T, t), or None for everything.
        """
        rows, steps = vectors.shape[1:3]
        together: Memory | None = None
        weights: Tensor | None = None

        def attend_self(normed: Tensor) -> Tensor:
            nonlocal together
            flat = normed.flatten(end_dim=1)  # (B * K, T, H)
            own = self.self_attention.remember(flat)
            together = own if seen is None else seen.extended(own)  # (B * K, N, t, H / N)
            context: Tensor = self.self_attention(flat, together, mask).context  # (B * K, T, H)
            return context.view(normed.shape)  # (B, K, T, H)

        def attend_source(normed: Tensor) -> Tensor:
            nonlocal weights
            found = self.cross_attention(normed.flatten(1, 2), source)  # queries (B, K * T, H)
            weights = found.weights.unflatten(2, (rows, steps))  # (B, N, K, T, S)
            context: Tensor = found.context  # (B, K * T, H)
            return context.view(normed.shape)  # (B, K, T, H)

        vectors = self.around_attention(vectors, attend_self)
        vectors = self.around_cross(vectors, attend_source)
        vectors = self.around_network(vectors, self.feed_forward)
        assert together is not None
        assert weights is not None
        return Looked(vectors, weights, together)
