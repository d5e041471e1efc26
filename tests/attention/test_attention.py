"""Global attention by torch, local attention by hand."""

import pytest
import torch
from torch.nn import functional

from captioner.attention.attention import Attention, LocalAttention
from captioner.attention.memory import Memory
from captioner.attention.scores import (
    AdditiveScore,
    ConcatScore,
    DotScore,
    GeneralScore,
    ScaledDotProductScore,
)

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


def test_local_weights_sum_to_one_over_the_window() -> None:
    """By hand, Luong et al. 2015, equation 7; its others are tested with the models."""
    values = torch.tensor([[[1.0], [2.0], [-1.0], [0.5], [3.0]]])
    attention = LocalAttention(DotScore(), half_width=1)
    memory = attention.remember(values)
    attended = attention(torch.ones(1, 3, 1), memory, torch.tensor([[0, 2, 2.5]]))
    for weights, window in zip(attended.weights[0], ([0, 1], [1, 2, 3], [2, 3]), strict=True):
        expected = torch.zeros(5)
        expected[window] = values[0, window, 0].softmax(dim=0)
        torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(attended.context[..., 0], attended.weights @ values[0, :, 0])
