"""The decoder of a Transformer: a stack of layers with cached keys.

Vaswani et al. 2017, *Attention Is All You Need*, section 3.1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention.memory import Memory
from captioner.attention.transformer_layers import DecoderLayer, LayerParts


class StackState(NamedTuple):
    """State of a stack after some tokens.

    memory: of B sources, values (B, S, H). sources: their keys and values for each layer,
    (B, N, S, H / N). keys, values: of the M tokens fed so far, of all rows, for each layer,
    (B, N, M, H / N). row_mask: (B, K, M) boolean, which of these belong to a row.
    """

    memory: Memory
    sources: tuple[Memory, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    row_mask: Tensor

    @property
    def length(self) -> Tensor:
        """Tokens fed so far, (), the same in every row."""
        return self.row_mask[0, 0].sum()


class DecoderStack(nn.ModuleList):
    """Decoder layers of the same sizes, without embeddings and without a norm behind them.

    A step computes only the newest token: the state caches keys and values of the earlier ones. The
    rows of a beam share one cache, and a mask gives each row its own tokens: a beam that selects
    rows selects of the mask, not of the cache of every layer.
    """

    def __init__(self, parts: LayerParts, layers: int) -> None:
        super().__init__(DecoderLayer(parts) for _ in range(layers))
        self.heads = parts.heads

    def start(self, memory: Memory) -> StackState:
        """Project keys and values of a memory with values (B, S, H) for each layer; no token yet.

        Gives a state of one row a source.
        """
        sources = tuple(
            layer.cross_attention.remember(memory.values, memory.mask)  # type: ignore[operator, union-attr]
            for layer in self
        )
        size = memory.values.shape[-1]
        empty = memory.values.new_empty(memory.batch_size, self.heads, 0, size // self.heads)
        cache = (empty,) * len(self)  # (B, N, 0, H / N) each
        row_mask = empty.new_empty(memory.batch_size, 1, 0, dtype=torch.bool)  # (B, 1, 0)
        return StackState(memory, sources, cache, cache, row_mask)

    def select(self, state: StackState, rows: Tensor) -> StackState:
        """Select rows (B, K') of each source's K; the cache is shared as the memory is."""
        index = rows.unsqueeze(-1).expand(*rows.shape, state.row_mask.shape[-1])  # (B, K', M)
        return state._replace(row_mask=state.row_mask.gather(1, index))

    def forward(
        self, vectors: Tensor, state: StackState, chosen: int
    ) -> tuple[Tensor, Tensor, StackState]:
        """Vectors of the T newest tokens (B, K, T, H), and the state before them.

        chosen: layer whose weights are returned, counted from 0; below 0 from the last.
        Returns outputs (B, K, T, H), that layer's attention over the source (B, N, K, T, S), and
        the next state.
        """
        rows, steps = vectors.shape[1:3]
        device = vectors.device
        newest = torch.eye(rows, dtype=torch.bool, device=device).repeat_interleave(steps, dim=1)
        newest = newest.expand(len(vectors), -1, -1)  # (B, K, K * T)
        row_mask = torch.cat([state.row_mask, newest], dim=-1)  # (B, K, M)
        mask = row_mask.repeat_interleave(steps, dim=1)  # (B, K * T, M)
        if steps > 1:
            mask[..., -rows * steps :] &= causal_mask(steps, device).repeat(rows, rows)
        mask = mask.unsqueeze(1)  # (B, 1, K * T, M)
        chosen = chosen % len(self)
        caches = []
        weights: Tensor | None = None
        for number, layer in enumerate(self):
            cache = None
            if state.row_mask.shape[-1]:
                cache = Memory(state.values[number], state.keys[number])
            output = layer(vectors, state.sources[number], cache, mask, number == chosen)
            vectors = output.vectors
            caches.append(output.cache)
            if number == chosen:
                weights = output.weights  # (B, N, K, T, S)
        assert weights is not None
        keys, values = zip(*((cache.keys, cache.values) for cache in caches), strict=True)
        return vectors, weights, state._replace(keys=keys, values=values, row_mask=row_mask)


def causal_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """Make the triangle (T, T), boolean: query t attends to the positions up to and with t.

    Vaswani et al. 2017, section 3.2.3: "prevent leftward information flow in the decoder".
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # (T, T)
