"""Attention over a memory: global, local (a window of it), and multi-head."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner import cpu
from captioner.attention.memory import Memory, checked_mask, refuse_empty_rows
from captioner.attention.scores import ScaledDotProductScore, Score
from captioner.attention.selection import Attended, HardSelection, SoftSelection, masked_softmax

Selection = SoftSelection | HardSelection


class Attention(nn.Module):
    """Attends to a memory, by soft selection by default. Stateless: the memory is an argument.

    temperature: divides the scores; below 1 the attention is narrower. 1 in the papers.
    """

    def __init__(
        self, score: Score, selection: Selection | None = None, temperature: float = 1.0
    ) -> None:
        super().__init__()
        self.score = score
        self.selection = selection or SoftSelection()
        self.temperature = temperature

    def remember(self, values: Tensor, mask: Tensor | None = None) -> Memory:
        """Project the keys of values (B, L, D), mask (B, L), once."""
        mask = checked_mask(mask, values.device)
        return Memory(values, self.score.project_keys(values), mask)  # keys (B, L, A)

    def forward(
        self,
        query: Tensor,
        memory: Memory,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> Attended:
        """Queries (B, Q, H) -> contexts (B, Q, D), weights and scores (B, Q, L).

        generator: source of hard selection's draws.
        expected: (B, Q) boolean, queries for which hard selection takes the expected value.
        """
        scores = self.score(query, memory) / self.temperature  # (B, Q, L)
        mask = combined_mask(memory, None)
        attended: Attended = self.selection(memory.values, scores, mask, generator, expected)
        return attended


class LocalAttention(Attention):
    """Attends to a window of a memory, the positions in [p - D, p + D] around a centre p.

    Luong et al. 2015, section 3.2. The positions of a source that may be attended are its first.

    half_width: D, at least 1.
    favour_centre: after the softmax over the window, multiply the weights by
        exp(-(s - p)^2 / (2 sigma^2)) with sigma = D / 2, equation 10. They then sum to less than
        one, and the centre gets a gradient.
    """

    def __init__(self, score: Score, half_width: int, favour_centre: bool = False) -> None:
        super().__init__(score)
        self.half_width = half_width
        self.favour_centre = favour_centre

    def forward(self, query: Tensor, memory: Memory, centres: Tensor) -> Attended:  # type: ignore[override]
        """Queries (B, Q, H) and their centres (B, Q) -> contexts (B, Q, D), weights (B, Q, L).

        A window is cut at the ends of its source. A centre beyond S, the number of positions of
        its source, counts as S, so that no window is empty.
        """
        lengths = source_lengths(memory)  # (B, 1)
        inside = centres.detach().clamp(min=0).minimum(lengths.to(centres.dtype))  # (B, Q)
        positions = torch.arange(memory.length, device=centres.device)  # (L)
        window = (positions - inside.unsqueeze(-1)).abs() <= self.half_width  # (B, Q, L)
        scores = self.score(query, memory)  # (B, Q, L)
        weights = masked_softmax(scores, combined_mask(memory, window))  # (B, Q, L)
        if self.favour_centre:
            distance = (positions - centres.unsqueeze(-1)) / (self.half_width / 2)  # (B, Q, L)
            weights = weights * torch.exp(-distance.square() / 2).to(weights.dtype)
        context = weights.to(memory.values.dtype) @ memory.values  # (B, Q, D)
        return Attended(context, weights, scores)


class PredictedCentre(nn.Module):
    """Predicts centres p = S sigmoid(v^T tanh(W h)). Luong et al. 2015, equation 9."""

    def __init__(self, query_size: int, size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, query: Tensor, memory: Memory) -> Tensor:
        """Queries (B, Q, H) -> centres (B, Q) from 0 to S, the number of positions of a source.

        In float32 at least: bfloat16 cannot represent every position beyond 256.
        """
        share = torch.sigmoid(self.energy(torch.tanh(self.projection(query))))  # (B, Q, 1)
        wide = torch.promote_types(share.dtype, torch.float32)
        return share.squeeze(-1).to(wide) * source_lengths(memory)  # (B, Q)


def source_lengths(memory: Memory) -> Tensor:
    """Count the positions of each source that may be attended: (B, 1)."""
    if memory.mask is None:
        return torch.full((memory.batch_size, 1), memory.length, device=memory.values.device)
    return memory.mask.sum(dim=-1, keepdim=True)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in N heads. Vaswani et al. 2017, section 3.2.2.

    query_size: H, also the result's. memory_size: D. heads: N, a divisor of H. dropout: of weights.
    """

    def __init__(self, query_size: int, memory_size: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.query_projection = nn.Linear(query_size, query_size)
        self.key_projection = nn.Linear(memory_size, query_size)
        self.value_projection = nn.Linear(memory_size, query_size)
        self.output_projection = nn.Linear(query_size, query_size)
        self.score = ScaledDotProductScore()
        self.dropout = nn.Dropout(dropout)
        self.has_cpu_code = cpu.is_switched_on()

    def remember(
        self, values: Tensor, mask: Tensor | None = None, batch_size: int | None = None
    ) -> Memory:
        """Project values (B, L, D), mask (B, L) to keys and values (B, N, L, H / N), once.

        batch_size: B, of values that are flat, (B * L, D).
        """
        batch_size = batch_size or values.shape[0]
        keys = self._split(self.key_projection(values), batch_size)  # (B, N, L, H / N)
        return Memory(self._split(self.value_projection(values), batch_size), keys, mask)

    def forward(self, query: Tensor, memory: Memory, mask: Tensor | None = None) -> Attended:
        """Queries (B, Q, H) -> contexts (B, Q, H), weights and scores (B, N, Q, L).

        Queries may be flat, (B * Q, H); contexts are then, too.
        mask: of these queries, boolean, broadcastable to (B, N, Q, L), such as `causal_mask`.
        """
        split = self._split(self.query_projection(query), memory.batch_size)  # (B, N, Q, H / N)
        scores = self.score(split, memory)  # (B, N, Q, L)
        weights = masked_softmax(scores, combined_mask(memory, mask))  # (B, N, Q, L)
        context = self.dropout(weights).to(memory.values.dtype) @ memory.values  # (B, N, Q, H / N)
        joined = context.transpose(1, 2).reshape(query.shape)  # (B, Q, H)
        return Attended(self.output_projection(joined), weights, scores)  # context (B, Q, H)

    def context(self, query: Tensor, memory: Memory, mask: Tensor | None = None) -> Tensor:
        """The contexts (B, Q, H) of `forward`, by torch's fused attention: a third of the calls.

        Does not check a mask of queries alone, which has no row that is all False.
        """
        split = self._split(self.query_projection(query), memory.batch_size)  # (B, N, Q, H / N)
        keys, values = memory.keys, memory.values
        allowed = mask if memory.mask is None else combined_mask(memory, mask)
        # In bfloat16 torch's kernel for CPUs takes twice as long, and its gradient 13 times.
        is_autocast = torch.is_autocast_enabled("cpu")
        is_slow = is_autocast and self.has_cpu_code and cpu.runs_on(split.device)
        if is_slow:
            split, keys, values = split.float(), keys.float(), values.float()
        with torch.autocast("cpu", enabled=False) if is_slow else nullcontext():
            dropout = self.dropout.p if self.training else 0.0
            context = functional.scaled_dot_product_attention(
                split, keys, values, allowed, dropout_p=dropout
            )  # (B, N, Q, H / N)
        joined = context.transpose(1, 2).reshape(query.shape)  # (B, Q, H)
        return self.output_projection(joined)  # type: ignore[no-any-return]

    def _split(self, projected: Tensor, batch_size: int) -> Tensor:
        """(B, L, H) or (B * L, H) -> (B, N, L, H / N)."""
        size = projected.shape[-1] // self.heads
        return projected.view(batch_size, -1, self.heads, size).transpose(1, 2)


def combined_mask(memory: Memory, mask: Tensor | None) -> Tensor | None:
    """Combine the masks of a memory and of its queries: broadcastable to (B, [N,] Q, L)."""
    combined = memory.mask
    if combined is not None:
        between = (1,) * (memory.values.dim() - 2)
        combined = combined.view(combined.shape[0], *between, -1)  # (B, [1,] 1, L)
    if mask is not None:
        combined = mask if combined is None else combined & mask  # (B, [N,] Q, L)
        refuse_empty_rows(combined)
    return combined
