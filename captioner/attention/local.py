"""Local attention: a window of positions around a centre. Luong et al. 2015, section 3.2."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.attention.attention import combined_mask
from captioner.attention.memory import Memory, checked_mask
from captioner.attention.scores import Score
from captioner.attention.selection import Attended, masked_softmax


class LocalAttention(nn.Module):
    """Attends to a window of a memory, the positions in [p - D, p + D] around a centre p.

    score: see `captioner.attention.scores`. half_width: D, at least 1.
    favour_centre: after the softmax over the window, multiply the weights by
        exp(-(s - p)^2 / (2 sigma^2)) with sigma = D / 2, equation 10. They then sum to less than
        one, and the centre gets a gradient.
    """

    def __init__(self, score: Score, half_width: int, favour_centre: bool = False) -> None:
        super().__init__()
        self.score = score
        self.half_width = half_width
        self.favour_centre = favour_centre

    def remember(self, values: Tensor, mask: Tensor | None = None) -> Memory:
        """Project the keys of values (B, L, D), mask (B, L), once.

        The positions that may be attended must be the first ones of each row. Raises `UserError`
        when a row has none.
        """
        mask = checked_mask(mask, values.device)
        return Memory(values, self.score.project_keys(values), mask)  # keys (B, L, A)

    def forward(self, query: Tensor, memory: Memory, centres: Tensor) -> Attended:
        """Queries (B, Q, H) and their centres (B, Q) -> contexts (B, Q, D), weights (B, Q, L).

        A window is cut at the ends of its source. A centre beyond S, the number of positions of
        its source, counts as S, so that no window is empty.
        """
        lengths = source_lengths(memory).unsqueeze(-1)  # (B, 1)
        inside = centres.detach().clamp(min=0).minimum(lengths.to(centres.dtype))  # (B, Q)
        positions = torch.arange(memory.length, device=centres.device)  # (L)
        window = (positions - inside.unsqueeze(-1)).abs() <= self.half_width  # (B, Q, L)
        scores = self.score.of_memory(query, memory)  # (B, Q, L)
        weights = masked_softmax(scores, combined_mask(memory, window))  # (B, Q, L)
        if self.favour_centre:
            distance = (positions - centres.unsqueeze(-1)) / (self.half_width / 2)  # (B, Q, L)
            weights = weights * torch.exp(-distance.square() / 2).to(weights.dtype)
        context = weights.to(memory.values.dtype) @ memory.values  # (B, Q, D)
        return Attended(context, weights, scores)


class PredictedCentre(nn.Module):
    """Predicts centres p = S sigmoid(v^T tanh(W h)). Luong et al. 2015, equation 9.

    query_size: H of the queries. size: of the hidden layer.
    """

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
        lengths = source_lengths(memory).unsqueeze(-1)  # (B, 1)
        return share.squeeze(-1).to(wide) * lengths  # (B, Q)


def source_lengths(memory: Memory) -> Tensor:
    """Count the positions of each source that may be attended: (B,)."""
    if memory.mask is None:
        return torch.full((memory.batch_size,), memory.length, device=memory.values.device)
    return memory.mask.sum(dim=-1)
