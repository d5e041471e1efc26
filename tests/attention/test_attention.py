"""Global attention, by torch and by hand; memories that grow."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from captioner.attention.attention import Attention
from captioner.attention.memory import Memory
from captioner.attention.scores import (
    AdditiveScore,
    ConcatScore,
    DotScore,
    GeneralScore,
    ScaledDotProductScore,
)
from captioner.attention.selection import HardSelection

SCORES = {
    "dot": lambda: DotScore(),
    "scaled dot-product": lambda: ScaledDotProductScore(),
    "general": lambda: GeneralScore(4, 4),
    "additive": lambda: AdditiveScore(4, 4, 6),
    "concat": lambda: ConcatScore(4, 4, 6),
}


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


PADDING = torch.tensor([[True, True, False, True, True], [True, False, False, False, False]])


@pytest.mark.parametrize("memory_mask", [None, PADDING], ids=["whole", "padded"])
def test_equals_torch_scaled_dot_product_attention(memory_mask) -> None:
    query, keys, values = random(2, 3, 4), random(2, 5, 4, seed=1), random(2, 5, 7, seed=2)
    attended = Attention(ScaledDotProductScore())(query, Memory(values, keys, memory_mask))
    together = torch.ones(2, 3, 5, dtype=torch.bool)  # torch's True also means: may be attended
    if memory_mask is not None:
        together = together & memory_mask[:, None]
    expected = functional.scaled_dot_product_attention(query, keys, values, attn_mask=together)
    torch.testing.assert_close(attended.context, expected)
    assert torch.equal(attended.weights > 0, together)  # masked: exactly 0
    torch.testing.assert_close(attended.weights.sum(dim=-1), torch.ones(2, 3))


@pytest.mark.parametrize("name", SCORES)
def test_padding_changes_nothing(name) -> None:
    attention = Attention(SCORES[name]())
    values, query = random(2, 5, 4), random(2, 3, 4, seed=1)
    mask = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    padded = attention(query, attention.remember(values, mask))
    alone = attention(query[:1], attention.remember(values[:1, :3]))
    torch.testing.assert_close(padded.context[:1], alone.context)
    torch.testing.assert_close(padded.weights[:1, :, :3], alone.weights)
    assert padded.weights[0, :, 3:].abs().max().item() == 0.0


@pytest.mark.parametrize("name", ["general", "additive", "concat"])
def test_keys_are_projected_once_a_memory(name) -> None:
    score = SCORES[name]()
    attention = Attention(score)
    calls: list[int] = []
    score.key_projection.register_forward_hook(lambda *_: calls.append(1))
    memory = attention.remember(random(2, 5, 4))
    assert len(calls) == 1
    for step in range(4):
        attention(random(2, 3, 4, seed=step), memory)
    assert len(calls) == 1


def test_hard_attention_draws_from_the_generator_handed_in() -> None:
    attention = Attention(ScaledDotProductScore(), HardSelection())
    values, query = random(1, 5, 4), random(1, 40, 4)
    mask = PADDING[:1]
    memory = attention.remember(values, mask)
    first, second = (
        attention(query, memory, generator=torch.Generator().manual_seed(5)) for _ in range(2)
    )
    assert torch.equal(first.positions, second.positions)
    assert len(set(first.positions.flatten().tolist())) > 1
    assert 2 not in first.positions.flatten().tolist()
    index = first.positions[0]
    assert torch.equal(first.context[0], values[0, index])
    attention.eval()
    assert torch.equal(attention(query, memory).positions, first.weights.argmax(dim=-1))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_stay_close_to_float32(name, dtype) -> None:
    torch.manual_seed(0)
    attention = Attention(SCORES[name]())
    values, query = random(2, 5, 4), random(2, 3, 4, seed=1)
    expected = attention(query, attention.remember(values, PADDING)).context
    attention.to(dtype)
    attended = attention(query.to(dtype), attention.remember(values.to(dtype), PADDING))
    assert attended.context.dtype == dtype
    torch.testing.assert_close(attended.context.float(), expected, rtol=0.05, atol=0.05)


def test_a_memory_grows_by_the_positions_of_another() -> None:
    first, more = torch.randn(2, 3, 4), torch.randn(2, 1, 4)
    grown = Memory(first, first + 1).extended(Memory(more, more + 1))
    assert grown.values.tolist() == torch.cat([first, more], dim=1).tolist()
    assert grown.keys.tolist() == (torch.cat([first, more], dim=1) + 1).tolist()
    assert grown.mask is None
