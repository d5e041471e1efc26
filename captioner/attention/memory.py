"""The memory of an attention system: a list of vectors for each source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from captioner import cpu


@dataclass(frozen=True, eq=False)
class Memory:
    """Values, projected keys and a mask of B sources.

    values: (B, L, D), summed by weight into context vectors. With N heads (B, N, L, D / N).
    keys: (B, L, A), compared with queries; projected already. With N heads (B, N, L, H / N).
    mask: (B, L) boolean, True where a position may be attended; None for all.

    The queries of one source (words of a caption, hypotheses of a beam) share its memory.
    """

    values: Tensor
    keys: Tensor
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        shapes = [tuple(self.values.shape), tuple(self.keys.shape)]
        if shapes[0][:-1] != shapes[1][:-1] or self.length == 0:
            raise ValueError(f"memory: values and keys {shapes} differ in (B, [N,] L), or L is 0")
        if self.mask is not None:
            shape = tuple(self.mask.shape)
            if shape != (self.batch_size, self.length):
                sizes = f"({self.batch_size}, {self.length})"
                raise ValueError(f"memory: mask {shape} is not (B, L) {sizes}")
            refuse_empty_rows(self.mask)

    @property
    def batch_size(self) -> int:
        """B, the number of sources."""
        return self.values.shape[0]

    @property
    def length(self) -> int:
        """L, the number of positions of a source, padding included."""
        return self.values.shape[-2]

    @cached_property
    def key_exponentials(self) -> Tensor:
        """exp(2 k) of the keys, (B, L, A), cached: a third of the work of an additive score."""
        return cpu.exponentials(self.keys)

    def select(self, sources: Tensor) -> Self:
        """Select sources (B',), indices into B."""
        mask = None if self.mask is None else self.mask.index_select(0, sources)  # (B', L)
        values = self.values.index_select(0, sources)  # (B', [N,] L, D)
        keys = values if self.keys is self.values else self.keys.index_select(0, sources)
        return replace(self, values=values, keys=keys, mask=mask)

    def extended(self, more: Memory) -> Memory:
        """Append the positions of another memory of the same B sources; neither has a mask."""
        return Memory(
            torch.cat([self.values, more.values], dim=-2),  # (B, [N,] L + M, D)
            torch.cat([self.keys, more.keys], dim=-2),  # (B, [N,] L + M, A)
        )


def checked_mask(mask: Tensor | None, device: torch.device) -> Tensor | None:
    """Check a mask (B, L) where it is, as `refuse_empty_rows` does, and move it to a device.

    None for a mask that is all True, as of one sentence, where its values may be read.
    """
    if mask is None:
        return None
    refuse_empty_rows(mask)
    is_readable = mask.device.type == "cpu" and not torch.compiler.is_compiling()
    return None if is_readable and mask.all() else mask.to(device, non_blocking=True)


def refuse_empty_rows(mask: Tensor) -> None:
    """Raise `ValueError` for a mask with a row (last dimension) that is all False.

    Also for a mask that is not boolean: 0 and 1, or 0 and -inf, are easily confused. Checks rows on
    a CPU only: reading a value waits for a GPU and breaks a compiled graph. An unchecked empty row
    gives NaN, which training and decoding refuse, or 0 in torch's fused attention.
    """
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean (True = may be attended), not {mask.dtype}")
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return
    attendable = mask.any(dim=-1)  # (...)
    if not bool(attendable.all()):
        row = (~attendable).nonzero()[0].tolist()
        raise ValueError(f"attention mask: row {row} has no position that may be attended")
