"""The layers of a Transformer, a decoder's stack with cached keys, and position encodings.

Vaswani et al. 2017, *Attention Is All You Need*, section 3.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner import cpu
from captioner.attention.attention import MultiHeadAttention
from captioner.attention.memory import Memory


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2, at each position. Section 3.3."""

    def __init__(self, size: int, inner_size: int, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(size, inner_size)
        self.outer = nn.Linear(inner_size, size)
        self.dropout = cpu.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """(..., H) -> (..., H)."""
        outputs: Tensor = self.outer(self.dropout(functional.relu(self.inner(vectors))))
        return outputs


class Residual(nn.Module):
    """Residual connection, norm and dropout around a part f of a layer.

    norm_first: x + f(norm(x)) (pre-norm, Xiong et al. 2020, figure 1), else norm(x + f(x)).
    """

    def __init__(self, size: int, norm_first: bool, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.norm_first = norm_first
        self.dropout = cpu.Dropout(dropout)

    def before(self, vectors: Tensor) -> Tensor:
        """Vectors x (..., H) -> the input of the part, (..., H)."""
        return self.norm(vectors) if self.norm_first else vectors

    def forward(self, vectors: Tensor, outputs: Tensor) -> Tensor:
        """Vectors x and outputs of the part, (..., H) each -> (..., H)."""
        total: Tensor = vectors + self.dropout(outputs)
        return total if self.norm_first else self.norm(total)


class LayerSizes(NamedTuple):
    """Sizes and options of a layer."""

    size: int  # H
    heads: int  # N
    inner_size: int  # F of `FeedForward`.
    norm_first: bool  # See `Residual`.
    dropout: float  # On the output of each part.
    inner_dropout: float  # On attention weights and inside `FeedForward`.

    def attention(self) -> MultiHeadAttention:
        """An attention of these sizes."""
        return MultiHeadAttention(self.size, self.size, self.heads, self.inner_dropout)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then a feed-forward network. Section 3.1."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = sizes.attention()
        self.feed_forward = FeedForward(sizes.size, sizes.inner_size, sizes.inner_dropout)
        self.around_attention = Residual(sizes.size, sizes.norm_first, sizes.dropout)
        self.around_network = Residual(sizes.size, sizes.norm_first, sizes.dropout)

    def forward(self, vectors: Tensor, mask: Tensor | None, batch_size: int) -> Tensor:
        """Vectors (B * S, H) of B sources and their mask (B, S) -> (B * S, H)."""
        normed = self.around_attention.before(vectors)
        memory = self.self_attention.remember(normed, mask, batch_size)
        vectors = self.around_attention(vectors, self.self_attention.context(normed, memory))
        normed = self.around_network.before(vectors)
        outputs: Tensor = self.around_network(vectors, self.feed_forward(normed))
        return outputs


class DecoderLayer(nn.Module):
    """Self-attention over the target, attention over the source, feed-forward. Section 3.1."""

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.self_attention = sizes.attention()
        self.cross_attention = sizes.attention()
        self.feed_forward = FeedForward(sizes.size, sizes.inner_size, sizes.inner_dropout)
        self.around_attention = Residual(sizes.size, sizes.norm_first, sizes.dropout)
        self.around_cross = Residual(sizes.size, sizes.norm_first, sizes.dropout)
        self.around_network = Residual(sizes.size, sizes.norm_first, sizes.dropout)

    def forward(
        self,
        vectors: Tensor,
        source: Memory,
        cache: Memory | None,
        mask: Tensor,
        needs_weights: bool,
    ) -> tuple[Tensor, Tensor | None, Memory]:
        """Vectors of the T newest tokens (B * K * T, H) -> vectors (B * K * T, H).

        Also the attention over the source (B, N, K * T, S), None unless `needs_weights`, and
        the keys and values of all tokens so far (B, N, M, H / N).

        source: `cross_attention.remember` of the encoder's outputs, of B sources.
        cache: keys and values of the earlier tokens of all rows, None before the first.
        mask: (B, 1, K * T, M), the tokens each of the newest may attend to, of all M.
        """
        normed = self.around_attention.before(vectors)
        newest = self.self_attention.remember(normed, batch_size=source.batch_size)
        extended = newest if cache is None else cache.extended(newest)  # (B, N, M, H / N)
        context = self.self_attention.context(normed, extended, mask)  # (B * K * T, H)
        vectors = self.around_attention(vectors, context)

        normed = self.around_cross.before(vectors)
        weights = None
        if needs_weights:
            attended = self.cross_attention(normed, source)
            context, weights = attended.context, attended.weights
        else:
            context = self.cross_attention.context(normed, source)  # (B * K * T, H)
        vectors = self.around_cross(vectors, context)

        outputs = self.feed_forward(self.around_network.before(vectors))  # (B * K * T, H)
        return self.around_network(vectors, outputs), weights, extended


class StackState(NamedTuple):
    """State of a stack after some tokens.

    memory: of B sources, values (B, S, H). sources: their keys and values for each layer,
    (B, N, S, H / N). caches: those of the M tokens fed so far, of all rows, for each layer,
    (B, N, M, H / N); none before the first. row_mask: (B, K, M), which of these belong to a row.
    """

    memory: Memory
    sources: tuple[Memory, ...]
    caches: tuple[Memory, ...]
    row_mask: Tensor

    @property
    def length(self) -> Tensor:
        """Tokens fed so far, (), the same in every row."""
        return self.row_mask[0, 0].sum()


class DecoderStack(nn.ModuleList):
    """Decoder layers of the same sizes, without embeddings and without a norm behind them.

    A step computes only the newest token: the state caches keys and values of the earlier ones. The
    rows of a beam share one cache, and a mask says which tokens belong to which row: selecting rows
    of a beam copies rows of the mask, not the cache of every layer.
    """

    def __init__(self, sizes: LayerSizes, layers: int) -> None:
        super().__init__(DecoderLayer(sizes) for _ in range(layers))

    def start(self, memory: Memory) -> StackState:
        """A memory with values (B, S, H) -> the state of one row a source, before any token."""
        sources = tuple(
            layer.cross_attention.remember(memory.values, memory.mask)  # type: ignore[operator, union-attr]
            for layer in self
        )
        row_mask = memory.values.new_empty(memory.batch_size, 1, 0, dtype=torch.bool)  # (B, 1, 0)
        return StackState(memory, sources, (), row_mask)

    def forward(
        self, vectors: Tensor, state: StackState, map_layer: int
    ) -> tuple[Tensor, Tensor, StackState]:
        """Vectors (B, K, T, H) of the T newest tokens, and the state before them.

        Returns vectors (B * K * T, H), the attention over the source (B, N, K, T, S) of one layer,
        and the state after the tokens.

        map_layer: that layer, counted from 0; below 0 from the last.
        """
        batch_size, rows, steps, _ = vectors.shape
        device = vectors.device
        newest = torch.eye(rows, dtype=torch.bool, device=device).expand(batch_size, -1, -1)
        if steps > 1:
            newest = newest.repeat_interleave(steps, dim=-1)  # (B, K, K * T)
        mask = row_mask = torch.cat([state.row_mask, newest], dim=-1)  # (B, K, M)
        if steps > 1:
            mask = row_mask.repeat_interleave(steps, dim=1)  # (B, K * T, M)
            mask[..., -rows * steps :] &= causal_mask(steps, device).repeat(rows, rows)
        mask = mask.unsqueeze(1)  # (B, 1, K * T, M)
        map_layer %= len(self)
        vectors = vectors.flatten(end_dim=2)  # (B * K * T, H): a graph adds a bias in the product.
        caches = []
        maps = []
        for number, layer in enumerate(self):
            vectors, weights, cache = layer(
                vectors,
                source=state.sources[number],
                cache=state.caches[number] if state.caches else None,
                mask=mask,
                needs_weights=number == map_layer,
            )
            caches.append(cache)
            maps.append(weights)  # (B, N, K * T, S)
        state = state._replace(caches=tuple(caches), row_mask=row_mask)
        return vectors, maps[map_layer].unflatten(2, (rows, steps)), state


def causal_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """Make the triangle (T, T), boolean: query t attends to positions up to t. Section 3.2.3."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # (T, T)


def sinusoidal_positions(first: int | Tensor, count: int, like: Tensor) -> Tensor:
    """Return the encodings (count, H) of positions `first`, `first` + 1, ..., counted from 0.

    Section 3.5:
    PE(p, 2i) = sin(p / 10000^(2i / H)), PE(p, 2i + 1) = cos(p / 10000^(2i / H)).
    like: (..., H) with H even; gives size, type and device. first: a tensor () is not read, which
        would wait for a GPU. Computed in float32 on every call: there is no maximum position.
    """
    size = like.shape[-1]
    positions = torch.arange(count, dtype=torch.float32, device=like.device) + first  # (count)
    even = torch.arange(0, size, 2, dtype=torch.float32, device=like.device)  # (H / 2)
    frequencies = torch.exp(even * (-math.log(10000.0) / size))  # (H / 2)
    angles = positions.unsqueeze(-1) * frequencies  # (count, H / 2)
    codes = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (count, H / 2, 2)
    return codes.flatten(start_dim=1).to(like.dtype)  # (count, H)
