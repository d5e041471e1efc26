"""What a recurrent encoder leaves: its outputs to be attended, and its last states."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from captioner.attention import Memory

RecurrentState = tuple[Tensor, ...]
"""The state of a recurrent network: hidden alone for a GRU; hidden and cell for an LSTM."""


@dataclass(frozen=True, eq=False)
class SourceMemory(Memory):
    """A memory, with the states that the encoder ended in.

    final: each (B, layers, H), hidden and, for an LSTM, cell.
    """

    final: RecurrentState = ()

    @classmethod
    def of(cls, memory: Memory, final: RecurrentState) -> SourceMemory:
        """A memory as it is, and the states beside it."""
        return cls(memory.values, memory.keys, memory.mask, final)
