from __future__ import annotations

import torch

from captioner.attention import Memory


def test_a_memory_grows_by_the_positions_of_another() -> None:
    first, more = torch.randn(2, 3, 4), torch.randn(2, 1, 4)
    grown = Memory(first, first + 1).extended(Memory(more, more + 1))
    assert grown.values.tolist() == torch.cat([first, more], dim=1).tolist()
    assert grown.keys.tolist() == (torch.cat([first, more], dim=1) + 1).tolist()
    assert grown.mask is None
