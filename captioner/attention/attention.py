"""Attention: a score function and a selection."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.attention.memory import Memory, checked_mask, refuse_empty_rows
from captioner.attention.scores import Score
from captioner.attention.selection import Attended, HardSelection, SoftSelection


class Attention(nn.Module):
    """Attends to a memory. Stateless: the memory is an argument.

    score: see `captioner.attention.scores`. selection: soft by default.
    """

    def __init__(
        self, score: Score, selection: SoftSelection | HardSelection | None = None
    ) -> None:
        super().__init__()
        self.score = score
        self.selection = SoftSelection() if selection is None else selection

    def remember(self, values: Tensor, mask: Tensor | None = None) -> Memory:
        """Project the keys of values (B, L, D), mask (B, L), once.

        Raises `UserError` when a row has no position that may be attended.
        """
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
        scores = self.score.of_memory(query, memory)  # (B, Q, L)
        attended: Attended = self.selection(
            memory.values, scores, combined_mask(memory, None), generator, expected
        )
        return attended


def combined_mask(memory: Memory, mask: Tensor | None) -> Tensor | None:
    """Combine the masks of a memory and of its queries: broadcastable to (B, [N,] Q, L).

    `Memory` has checked its own mask (B, L); the other one is checked here.
    Raises `UserError` when the combined mask leaves a query nothing to attend.
    """
    memory_mask = memory.mask
    if memory_mask is not None:
        between = (1,) * (memory.values.dim() - 2)
        batch_size, length = memory_mask.shape
        memory_mask = memory_mask.view(batch_size, *between, length)  # (B, [1,] 1, L)
    if mask is None:
        return memory_mask
    refuse_empty_rows(mask)
    if memory_mask is None:
        return mask
    combined = memory_mask & mask  # (B, [N,] Q, L)
    refuse_empty_rows(combined)
    return combined
