"""What an attention system looks at: a list of vectors for each source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.errors import UserError


@dataclass(frozen=True, eq=False)
class Memory:
    """Values, their keys and a mask, for B sources; projected once, looked at many times.

    values: (B, L, D), what a context vector is a weighted sum of. With N heads (B, N, L, D / N).
    keys: (B, L, A), what queries are compared with, already projected. With N heads
        (B, N, L, A / N).
    mask: (B, L) boolean, True where a position may be attended, or None when all may.
    prepared: what else the score function made of the keys, see `Score.prepare`; None for nothing.

    Several queries may look at one memory (the words of a caption, the hypotheses of a beam), so
    a memory is never copied for them. Raises `UserError` when shapes do not fit together, when
    the mask is not boolean, or when a source has no position that may be attended.
    """

    values: Tensor
    keys: Tensor
    mask: Tensor | None = None
    prepared: Tensor | None = None

    def __post_init__(self) -> None:
        if self.values.dim() < 3 or self.values.shape[:-1] != self.keys.shape[:-1]:
            raise UserError(
                f"memory: values {tuple(self.values.shape)} and keys {tuple(self.keys.shape)} "
                "must agree in all but their last dimension, (B, L, ...)"
            )
        if self.mask is not None:
            expected = (self.values.shape[0], self.values.shape[-2])
            if tuple(self.mask.shape) != expected:
                raise UserError(
                    f"memory: mask {tuple(self.mask.shape)} should be (B, L) = {expected}"
                )
            refuse_empty_rows(self.mask)
        elif self.length == 0:
            raise UserError("memory: there is nothing to attend, L is 0")

    @property
    def batch_size(self) -> int:
        """B, the number of sources."""
        return self.values.shape[0]

    @property
    def length(self) -> int:
        """L, the number of positions of a source, padding included."""
        return self.values.shape[-2]

    def extended(self, more: Memory) -> Memory:
        """A memory with the positions of another behind its own: a cache that grows by a step.

        Both are of the same B sources; of `prepared` nothing is kept unless both have it.
        """
        mask = None
        if self.mask is not None or more.mask is not None:
            mask = torch.cat([each.full_mask() for each in (self, more)], dim=-1)  # (B, L + M)
        prepared = None
        if self.prepared is not None and more.prepared is not None:
            prepared = torch.cat([self.prepared, more.prepared], dim=-2)  # (B, [N,] L + M, ...)
        return Memory(
            torch.cat([self.values, more.values], dim=-2),  # (B, [N,] L + M, D)
            torch.cat([self.keys, more.keys], dim=-2),  # (B, [N,] L + M, A)
            mask,
            prepared,
        )

    def full_mask(self) -> Tensor:
        """The mask (B, L), all True where there is none."""
        if self.mask is not None:
            return self.mask
        return self.values.new_ones(self.batch_size, self.length, dtype=torch.bool)


def refuse_empty_rows(mask: Tensor) -> None:
    """Raise `UserError` when a row (last dimension) of a boolean mask has no True in it.

    Also raised for a mask that is not boolean: 0 and 1, or 0 and -inf, are easily the wrong way
    round.
    """
    if mask.dtype != torch.bool:
        raise UserError(
            f"attention mask must be boolean (True = may be attended), not {mask.dtype}"
        )
    attendable = mask.any(dim=-1)  # (...), the mask's but its last dimension
    if not bool(attendable.all()):
        row = (~attendable).nonzero()[0].tolist()
        raise UserError(f"attention mask: row {row} has no position that may be attended")
