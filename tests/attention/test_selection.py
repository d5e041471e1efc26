import math

import pytest
import torch

from captioner.attention.selection import HardSelection, SoftSelection, masked_softmax


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_scores_are_normalised_in_float32(dtype) -> None:
    # 3000 equal scores: a sum kept in bfloat16 stops growing at 256.
    scores = torch.zeros(1, 3000, dtype=dtype)
    weights = masked_softmax(scores)
    assert weights.dtype == torch.float32
    assert weights[0, 0].item() == pytest.approx(1 / 3000, rel=1e-6)
    uneven = (torch.randn(4, 300, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    assert torch.equal(masked_softmax(uneven), torch.softmax(uneven.float(), dim=-1))


VALUES = torch.tensor([[[1.0, 2.0], [3.0, -1.0], [0.5, 4.0], [100.0, 100.0]]], dtype=torch.float64)
SCORES = torch.tensor([[[0.2, 1.0, -0.5, 7.0]]], dtype=torch.float64)
MASK = torch.tensor([[[True, True, True, False]]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_log_probability_of_narrow_scores_is_not_rounded(dtype) -> None:
    wide = torch.randn(4, 30, 300, generator=torch.Generator().manual_seed(0)) * 3
    scores, leaf = wide.to(dtype).requires_grad_(), wide.to(dtype).double().requires_grad_()
    mask = torch.rand(4, 1, 300, generator=torch.Generator().manual_seed(1)) < 0.7
    values = torch.zeros(4, 300, 2, dtype=dtype)
    attended = HardSelection()(values, scores, mask, torch.Generator().manual_seed(2))
    exact = torch.log_softmax(leaf.masked_fill(~mask, float("-inf")), dim=-1)
    expected = exact.gather(-1, attended.positions.unsqueeze(-1)).squeeze(-1)
    assert attended.log_probability.dtype == torch.float32
    torch.testing.assert_close(attended.log_probability.double(), expected, rtol=0, atol=1e-5)
    attended.log_probability.sum().backward()
    expected.sum().backward()
    # The gradient is rounded once, to the type of the scores.
    tolerance = torch.finfo(dtype).eps
    torch.testing.assert_close(scores.grad.double(), leaf.grad, rtol=tolerance, atol=1e-6)


def test_the_entropy_by_numbers() -> None:
    scores = torch.tensor([[[0.0, 0.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -500.0, 9.0]]])
    mask = torch.tensor([[[True, True, True, False], [True] * 4, [False, True, True, False]]])
    attended = HardSelection()(torch.zeros(1, 4, 1), scores, mask, None)
    expected = torch.tensor([[math.log(3), math.log(4), 0.0]])
    torch.testing.assert_close(attended.entropy, expected)


def test_expected_queries_get_the_soft_context_and_others_a_draw() -> None:
    values = VALUES.expand(2, -1, -1).clone().requires_grad_()
    scores = SCORES.expand(2, 3, -1).clone().requires_grad_()
    expected = torch.tensor([[True, False, True], [False, False, True]])
    found = HardSelection()(values, scores, MASK, torch.Generator().manual_seed(0), expected)
    drawn = HardSelection()(values, scores, MASK, torch.Generator().manual_seed(0))
    soft = SoftSelection()(values, scores, MASK)
    assert torch.equal(found.positions, drawn.positions)  # those of others are what they were
    torch.testing.assert_close(found.context[expected], soft.context[expected])
    places = found.positions[~expected]
    assert torch.equal(found.context[~expected], values[0, places])
    (through,) = torch.autograd.grad(found.context.sum(), scores, retain_graph=True)
    (wanted,) = torch.autograd.grad(soft.context[expected].sum(), scores)
    torch.testing.assert_close(through, wanted)
    assert (through[expected].abs().sum(dim=-1) > 0).all()
    assert (through[~expected] == 0).all()
