from __future__ import annotations

import pytest
import torch

from captioner.attention import Memory


def test_sizes() -> None:
    memory = Memory(torch.zeros(2, 5, 3), torch.zeros(2, 5, 7), torch.ones(2, 5, dtype=torch.bool))
    assert (memory.batch_size, memory.length) == (2, 5)
    heads = Memory(torch.zeros(2, 4, 5, 3), torch.zeros(2, 4, 5, 7))
    assert (heads.batch_size, heads.length) == (2, 5)


@pytest.mark.parametrize(
    ("values", "keys"),
    [((2, 5, 3), (2, 4, 3)), ((2, 5, 3), (1, 5, 3)), ((5, 3), (5, 3)), ((2, 5, 3), (2, 1, 5, 3))],
)
def test_values_and_keys_must_fit(values, keys) -> None:
    with pytest.raises(ValueError, match=r"should be \(B, L, ...\), alike in all but"):
        Memory(torch.zeros(values), torch.zeros(keys))


@pytest.mark.parametrize("shape", [(2, 4), (5,), (2, 5, 1), (1, 5)])
def test_mask_must_be_sources_by_positions(shape) -> None:
    with pytest.raises(ValueError, match=r"should be \(B, L\) = \(2, 5\)"):
        Memory(torch.zeros(2, 5, 3), torch.zeros(2, 5, 3), torch.ones(shape, dtype=torch.bool))


def test_mask_must_be_boolean() -> None:
    with pytest.raises(ValueError, match=r"must be boolean.*float32"):
        Memory(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.ones(1, 2))


def test_a_source_with_nothing_to_attend_is_named() -> None:
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    with pytest.raises(ValueError, match=r"row \[1\] has no position that may be attended"):
        Memory(torch.zeros(3, 2, 3), torch.zeros(3, 2, 3), mask)


@pytest.mark.parametrize("mask", [None, torch.ones(2, 0, dtype=torch.bool)])
def test_a_memory_of_length_zero_is_refused(mask) -> None:
    with pytest.raises(ValueError, match=r"nothing to attend|no position"):
        Memory(torch.zeros(2, 0, 3), torch.zeros(2, 0, 3), mask)


def test_memories_can_be_compared_and_be_keys() -> None:
    first, second = (Memory(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)) for _ in range(2))
    assert first == first
    assert first != second
    assert len({first, second}) == 2


def test_a_memory_grows_by_the_positions_of_another() -> None:
    first, more = torch.randn(2, 3, 4), torch.randn(2, 1, 4)
    grown = Memory(first, first + 1).extended(Memory(more, more + 1))
    assert grown.values.tolist() == torch.cat([first, more], dim=1).tolist()
    assert grown.keys.tolist() == (torch.cat([first, more], dim=1) + 1).tolist()
    assert grown.mask is None
