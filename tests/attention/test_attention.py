"""Global and multi-head attention by torch, local attention by hand."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_transformer import copy_attention

from captioner.attention.attention import (
    Attention,
    LocalAttention,
    MultiHeadAttention,
    PredictedCentre,
)
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


def test_local_attention_by_hand() -> None:
    """Luong et al. 2015, equations 7, 9 and 10."""
    values = torch.tensor([[[1.0], [2.0], [-1.0], [0.5], [3.0]]])
    attention = LocalAttention(DotScore(), half_width=1)
    memory = attention.remember(values)
    attended = attention(torch.ones(1, 3, 1), memory, torch.tensor([[0, 2, 2.5]]))
    for weights, window in zip(attended.weights[0], ([0, 1], [1, 2, 3], [2, 3]), strict=True):
        expected = torch.zeros(5)
        expected[window] = values[0, window, 0].softmax(dim=0)
        torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(attended.context[..., 0], attended.weights @ values[0, :, 0])
    favoured = LocalAttention(DotScore(), 1, True)(torch.ones(1, 1, 1), memory, torch.tensor([[2]]))
    gauss = torch.tensor([0, math.exp(-2), 1, math.exp(-2), 0])  # sigma is 1 / 2
    torch.testing.assert_close(favoured.weights[0, 0], attended.weights[0, 1] * gauss)
    predicted = PredictedCentre(2, 3)
    query = torch.tensor([[[0.5, -1.0]]])
    energy = predicted.energy.weight @ torch.tanh(predicted.projection.weight @ query[0, 0])
    torch.testing.assert_close(predicted(query, memory)[0], 5 * torch.sigmoid(energy))
    third = Memory(values, values, torch.tensor([[True] * 3 + [False] * 2])).select(
        torch.tensor([0])
    )
    torch.testing.assert_close(predicted(query, third)[0], 3 * torch.sigmoid(energy))


B, Q, L, H, N = 2, 4, 6, 8, 2
OF_FIRST = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
CAUSAL = torch.ones(Q, L, dtype=torch.bool).tril()


@pytest.mark.parametrize("padding", [None, OF_FIRST], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [None, CAUSAL], ids=["all", "causal"])
@torch.no_grad()
def test_equals_torch_multi_head_attention(padding, causal) -> None:
    ours, theirs = MultiHeadAttention(H, H, N), nn.MultiheadAttention(H, N, batch_first=True)
    copy_attention(ours, theirs)
    query, values = random(B, Q, H, seed=1), random(B, L, H, seed=2)
    attended = ours(query, ours.remember(values, padding), causal)
    expected, weights = theirs(
        query,
        values,
        values,
        key_padding_mask=None if padding is None else ~padding,  # there True means: left out
        attn_mask=None if causal is None else ~causal,
        average_attn_weights=False,
    )
    torch.testing.assert_close(attended.context, expected)
    torch.testing.assert_close(attended.weights, weights)
    assert attended.weights.shape == (B, N, Q, L)
    if causal is not None:
        assert attended.weights.masked_select(~causal).abs().max().item() == 0.0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_contexts_alone_are_those_with_weights(masked: bool, training: bool) -> None:
    attention = MultiHeadAttention(8, 6, 2, dropout=0.5).train(training)
    padding = torch.arange(5) < torch.tensor([[5], [2], [3]])
    memory = attention.remember(random(3, 5, 6), padding if masked else None)
    query = random(3, 4, 8, seed=1)
    mask = torch.ones(3, 1, 4, 5, dtype=torch.bool).tril(1) if masked else None
    torch.manual_seed(2)  # Of dropout: drawn alike.
    wanted = attention(query, memory, mask).context
    torch.manual_seed(2)
    torch.testing.assert_close(attention.context(query, memory, mask), wanted)
    again = attention(query, memory, mask)
    assert torch.allclose(again.context, wanted) is not training  # Dropout in training only,
    assert torch.allclose(again.weights.sum(dim=-1), torch.ones(3, 2, 4))  # behind the weights.


def test_under_autocast_only_projections_differ_from_float32() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(32, 24, 4)
    query, values = torch.randn(3, 5, 32, requires_grad=True), torch.randn(3, 7, 24)
    plain = attention.context(query, attention.remember(values))
    (expected,) = torch.autograd.grad(plain.square().sum(), query)
    with torch.autocast("cpu", torch.bfloat16):
        found = attention.context(query, attention.remember(values))
    (gradient,) = torch.autograd.grad(found.float().square().sum(), query)
    torch.testing.assert_close(found.float(), plain, rtol=0.02, atol=0.02)
    torch.testing.assert_close(gradient, expected, rtol=0.05, atol=0.02)


def heads(memory_mask: Tensor | None, mask: Tensor, name: str = "forward") -> Callable[[], object]:
    """Multi-head attention of 4 queries to 3 positions of 2 sources."""

    def attend() -> object:
        attention = MultiHeadAttention(8, 6, 2)
        memory = attention.remember(torch.zeros(2, 3, 6), memory_mask)
        return getattr(attention, name)(torch.zeros(2, 4, 8), memory, mask)

    return attend


VALUES, ALL = torch.zeros(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
SECOND_EMPTY = torch.tensor([[True] * 5, [False] * 5])
FIRST = torch.ones(4, 3, dtype=torch.bool).tril()
LATE = torch.tensor([[True] * 3, [False, True, True]])


@pytest.mark.parametrize(
    ("keys", "mask", "sentence"),
    [
        (VALUES[:, :4], None, "(2, 4, 3)] differ in (B, [N,] L)"),
        (VALUES, ALL[:1], "mask (1, 5) is not (B, L) (2, 5)"),
        (VALUES, ALL.float(), "must be boolean (True = may be attended)"),
        (VALUES, SECOND_EMPTY, "row [1] has no position that may be"),
    ],
)
def test_a_mistake_about_a_memory_is_named(
    keys: Tensor, mask: Tensor | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Memory(VALUES, keys, mask)


def test_a_memory_without_a_position_is_refused_when_remembered() -> None:
    with pytest.raises(ValueError, match=r"row \[1\] has no position"):
        Attention(DotScore()).remember(VALUES, SECOND_EMPTY)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (heads(LATE, FIRST), "row [1, 0, 0] has no position"),
        (heads(LATE, FIRST, "context"), "row [1, 0, 0] has no position"),
        (heads(None, FIRST.float()), "must be boolean"),
    ],
)
def test_a_mistake_about_masks_of_heads_is_named(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make()
