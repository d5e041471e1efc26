"""The objective by numbers worked out by hand, and what padding may not change."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from captioner.caption.losses import (
    doubly_stochastic_penalty,
    grounding_penalty,
)

MASK = torch.tensor([[True, True], [True, False]])


WEIGHTS = torch.tensor(
    [
        [[0.7, 0.1, 0.1, 0.1], [0.4, 0.4, 0.1, 0.1]],
        [[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]],
    ]
)  # (B, T, L) = (2, 2, 4)


def test_penalty_by_hand() -> None:
    # Received: 1.1, 0.5, 0.2, 0.2; and 0.25 each, the padding left out.
    expected = [0.1**2 + 0.5**2 + 0.8**2 + 0.8**2, 4 * 0.75**2]
    torch.testing.assert_close(doubly_stochastic_penalty(WEIGHTS, MASK), torch.tensor(expected))
    # T / L is 2 / 4 and, with one word of two being padding, 1 / 4.
    expected = [0.6**2 + 0.0**2 + 0.3**2 + 0.3**2, 0.0]
    found = doubly_stochastic_penalty(WEIGHTS, MASK, "share")
    torch.testing.assert_close(found, torch.tensor(expected))


Term = Callable[[Tensor], Tensor]
TERMS: dict[str, Term] = {
    "one": lambda weights: doubly_stochastic_penalty(weights, MASK),
    "share": lambda weights: doubly_stochastic_penalty(weights, MASK, "share"),
}


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_padding_counts_for_nothing(term: Term) -> None:
    other = WEIGHTS.clone()
    other[1, 1] = torch.randn(WEIGHTS.shape[2]) * 100
    assert torch.equal(term(WEIGHTS), term(other))
    variable = WEIGHTS.clone().requires_grad_()
    term(variable).sum().backward()
    assert torch.equal(variable.grad[1, 1], torch.zeros(WEIGHTS.shape[2]))
    assert (variable.grad[0].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_sums_are_in_float32_or_double_precision(term: Term) -> None:
    half = WEIGHTS.bfloat16()
    assert term(half).dtype == torch.float32
    assert torch.equal(term(half), term(half.float()))
    exact = WEIGHTS.double()
    exact[0, 0, 0] += 1e-12
    found, other = term(exact), term(WEIGHTS.double())
    assert found.dtype == torch.float64
    assert float((found[0] - other[0]).abs()) == pytest.approx(1e-12, rel=0.9)


def test_attention_that_misses_what_a_word_names_is_penalised() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.4, 0.4]]])  # (1, 3, 3)
    # The first word names the first place, the second half of the last; the third nothing.
    places = torch.tensor([[[1.0, 0, 0], [0, 0, 0.5], [0, 0, 0]]])
    weights.requires_grad_()
    penalty = grounding_penalty(weights, places)
    assert penalty.tolist() == pytest.approx([-math.log(0.5) - math.log(0.4)])
    (gradient,) = torch.autograd.grad(penalty.sum(), weights)
    expected = torch.tensor([[[-2.0, 0, 0], [0, 0, -1.25], [0, 0, 0]]])
    assert torch.allclose(gradient, expected)
    nowhere = grounding_penalty(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]]]))
    assert torch.isfinite(nowhere).all()
    assert float(nowhere) > 50
