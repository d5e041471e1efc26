"""Global and multi-head attention by torch, local attention by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from captioner.attention.attention import Attention, LocalAttention, MultiHeadAttention
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


# Multi-head.

B, Q, L, H, D, N = 2, 4, 6, 8, 10, 2


def pair(memory_size: int) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Ours and torch's, with the same weights."""
    torch.manual_seed(0)
    ours = MultiHeadAttention(H, memory_size, heads=N)
    theirs = nn.MultiheadAttention(H, N, kdim=memory_size, vdim=memory_size, batch_first=True)
    projections = (ours.query_projection, ours.key_projection, ours.value_projection)
    with torch.no_grad():
        if memory_size == H:
            theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        else:
            theirs.q_proj_weight.copy_(ours.query_projection.weight)
            theirs.k_proj_weight.copy_(ours.key_projection.weight)
            theirs.v_proj_weight.copy_(ours.value_projection.weight)
        theirs.out_proj.weight.copy_(ours.output_projection.weight)
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.bias.copy_(ours.output_projection.bias)
    return ours, theirs


OF_FIRST = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
CAUSAL = torch.ones(Q, L, dtype=torch.bool).tril()


@pytest.mark.parametrize("memory_size", [H, D])
@pytest.mark.parametrize("padding", [None, OF_FIRST], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [None, CAUSAL], ids=["all", "causal"])
def test_equals_torch_multi_head_attention(memory_size, padding, causal) -> None:
    ours, theirs = pair(memory_size)
    query, values = random(B, Q, H, seed=1), random(B, L, memory_size, seed=2)
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


def test_dropout_leaves_weights_out_in_training_only() -> None:
    attention = MultiHeadAttention(H, D, N, dropout=0.5)
    memory = attention.remember(random(B, L, D))
    query = random(B, Q, H)
    torch.manual_seed(0)
    trained = attention(query, memory)
    attention.eval()
    first, second = attention(query, memory), attention(query, memory)
    assert torch.equal(first.context, second.context)
    assert not torch.allclose(trained.context, first.context)
    torch.testing.assert_close(trained.weights, first.weights)  # as they were before dropout


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_contexts_alone_are_those_with_weights(masked: bool, training: bool) -> None:
    attention = MultiHeadAttention(8, 6, 2, dropout=0.5).train(training)
    memory = attention.remember(
        random(3, 5, 6), torch.arange(5) < torch.tensor([[5], [2], [3]]) if masked else None
    )
    query = random(3, 4, 8, seed=1)
    mask = torch.ones(3, 1, 4, 5, dtype=torch.bool).tril(1) if masked else None
    torch.manual_seed(2)  # Of dropout: drawn alike.
    wanted = attention(query, memory, mask).context
    torch.manual_seed(2)
    torch.testing.assert_close(attention.context(query, memory, mask), wanted)


def test_contexts_under_autocast_are_those_of_float32_but_for_the_projections() -> None:
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
