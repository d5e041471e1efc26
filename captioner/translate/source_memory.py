"""The memory of a recurrent encoder: its outputs and final states."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor
from typing_extensions import Self

from captioner.attention import Memory

RecurrentState = tuple[Tensor, ...]
"""State of a recurrent network: (hidden,) of a GRU, (hidden, cell) of an LSTM."""


@dataclass(frozen=True, eq=False)
class SourceMemory(Memory):
    """A memory with the final states of the encoder.

    final: (B, layers, H) each.
    """

    final: RecurrentState = ()

    @classmethod
    def of(cls, memory: Memory, final: RecurrentState) -> SourceMemory:
        """Add final states to a memory."""
        return cls(memory.values, memory.keys, memory.mask, final)

    def select(self, sources: Tensor) -> Self:
        """Select sources (B',), indices into B."""
        final = tuple(each.index_select(0, sources) for each in self.final)
        return replace(super().select(sources), final=final)
