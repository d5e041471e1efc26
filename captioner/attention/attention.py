"""A score function and a selection make an attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.attention.memory import Memory, refuse_empty_rows
from captioner.attention.scores import Score
from captioner.attention.selection import Attended, HardSelection, SoftSelection


class Attention(nn.Module):
    """Looks at a memory with queries. Holds weights only: what is looked at is handed in.

    score: how well a query matches a key (`captioner.attention.scores`).
    selection: what is made of the scores; soft by default.
    """

    def __init__(
        self, score: Score, selection: SoftSelection | HardSelection | None = None
    ) -> None:
        super().__init__()
        self.score = score
        self.selection = SoftSelection() if selection is None else selection

    def remember(self, values: Tensor, mask: Tensor | None = None) -> Memory:
        """Values (B, L, D), mask (B, L) -> a memory whose keys are projected, once.

        Raises `UserError` when a row has no position that may be attended.
        """
        keys = self.score.project_keys(values)  # (B, L, A)
        return Memory(values, keys, mask, self.score.prepare(keys))

    def forward(
        self,
        query: Tensor,
        memory: Memory,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> Attended:
        """Queries (B, Q, H) -> contexts (B, Q, D), weights and scores (B, Q, L).

        mask: a further mask for these queries, boolean, broadcastable to (B, Q, L), for example
        what a position may see of those before it.
        generator: what hard selection draws from.
        expected: (B, Q) boolean, where hard selection gives the expected value instead.
        Raises `UserError` when the masks together leave a query nothing to attend.
        """
        scores = self.score(query, memory.keys, memory.prepared)  # (B, Q, L)
        together = combined_mask(memory, mask)
        result: Attended = self.selection(memory.values, scores, together, generator, expected)
        return result


def combined_mask(memory: Memory, mask: Tensor | None) -> Tensor | None:
    """The mask of a memory and one of its queries -> one, broadcastable to (B, [N,] Q, L).

    The memory's own (B, L) was checked when it was made; only a further mask is checked here.
    Raises `UserError` when together they leave a query nothing to attend.
    """
    own = memory.mask
    if own is not None:
        between = (1,) * (memory.values.dim() - 2)
        own = own.view(own.shape[0], *between, own.shape[1])  # (B, [1,] 1, L)
    if mask is None:
        return own
    refuse_empty_rows(mask)
    if own is None:
        return mask
    together = own & mask  # (B, [N,] Q, L)
    refuse_empty_rows(together)
    return together
