"""Multi-head attention."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner import cpu
from captioner.attention.attention import combined_mask
from captioner.attention.memory import Memory
from captioner.attention.scores import ScaledDotProductScore
from captioner.attention.selection import Attended, masked_softmax
from captioner.errors import UserError


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in N heads. Vaswani et al. 2017, section 3.2.2.

    query_size: H, also the size of the result. memory_size: D of the memory's values.
    heads: N, a divisor of the query size, which they share.
    dropout: probability, of the attention weights.

    Raises `UserError` when N does not divide the query size.
    """

    def __init__(self, query_size: int, memory_size: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or query_size % heads:
            raise UserError(f"query size {query_size} cannot be divided among {heads} heads")
        self.heads = heads
        self.query_projection = nn.Linear(query_size, query_size)
        self.key_projection = nn.Linear(memory_size, query_size)
        self.value_projection = nn.Linear(memory_size, query_size)
        self.output_projection = nn.Linear(query_size, query_size)
        self.score = ScaledDotProductScore()
        self.dropout = nn.Dropout(dropout)

    def remember(self, values: Tensor, mask: Tensor | None = None) -> Memory:
        """Project values (B, L, D), mask (B, L) to keys and values (B, N, L, H / N), once.

        Raises `UserError` when a row has no position that may be attended.
        """
        keys = self._split(self.key_projection(values))  # (B, N, L, H / N)
        return Memory(self._split(self.value_projection(values)), keys, mask)  # (B, N, L, H / N)

    def forward(self, query: Tensor, memory: Memory, mask: Tensor | None = None) -> Attended:
        """Queries (B, Q, H) -> contexts (B, Q, H), weights and scores (B, N, Q, L).

        mask: mask of these queries, boolean, broadcastable to (B, N, Q, L), for example
            `causal_mask`. Raises `UserError` when a query has nothing to attend.
        """
        split = self._split(self.query_projection(query))  # (B, N, Q, H / N)
        scores = self.score(split, memory.keys)  # (B, N, Q, L)
        weights = masked_softmax(scores, combined_mask(memory, mask))  # (B, N, Q, L)
        shares = self.dropout(weights).to(memory.values.dtype)  # (B, N, Q, L)
        context = shares @ memory.values  # (B, N, Q, H / N)
        joined = context.transpose(1, 2).flatten(start_dim=2)  # (B, Q, H)
        return Attended(self.output_projection(joined), weights, scores)  # context (B, Q, H)

    def context(self, query: Tensor, memory: Memory, mask: Tensor | None = None) -> Tensor:
        """Queries (B, Q, H) -> only the contexts (B, Q, H) of `forward`.

        By torch's fused attention: a third of the calls.
        """
        split = self._split(self.query_projection(query))  # (B, N, Q, H / N)
        keys, values = memory.keys, memory.values
        # In bfloat16 torch's kernel for CPUs takes twice as long, and its gradient 13 times.
        is_slow = torch.is_autocast_enabled("cpu") and cpu.enabled(split.device)
        if is_slow:
            split, keys, values = split.float(), keys.float(), values.float()
        with torch.autocast("cpu", enabled=False) if is_slow else nullcontext():
            context = functional.scaled_dot_product_attention(
                split,
                keys,
                values,
                combined_mask(memory, mask),
                dropout_p=self.dropout.p if self.training else 0.0,
            )  # (B, N, Q, H / N)
        joined = context.transpose(1, 2).flatten(start_dim=2)  # (B, Q, H)
        return self.output_projection(joined)  # type: ignore[no-any-return]

    def _split(self, projected: Tensor) -> Tensor:
        """(B, L, H) -> (B, N, L, H / N)."""
        batch_size, length, size = projected.shape
        split = projected.view(batch_size, length, self.heads, size // self.heads)
        return split.transpose(1, 2)  # (B, N, L, H / N)
