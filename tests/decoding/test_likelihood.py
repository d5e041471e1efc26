"""Cross-entropy by numbers worked out by hand, against torch's own, and what padding may not do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from captioner.decoding import cross_entropies

PROBABILITIES = torch.tensor(
    [[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6], [0.9, 0.05, 0.05]]]
)  # (B, T, V) = (2, 2, 3)
TARGETS = torch.tensor([[0, 1], [2, 0]])
MASK = torch.tensor([[True, True], [True, False]])


def test_by_hand() -> None:
    # Softmax takes constants no notice of, so logits are log-probabilities and any number.
    found = cross_entropies(PROBABILITIES.log() + 7, TARGETS, MASK).smoothed
    expected = [-math.log(0.5) - math.log(0.8), -math.log(0.6)]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_label_smoothing_by_hand() -> None:
    found = cross_entropies(PROBABILITIES.log(), TARGETS, MASK, label_smoothing=0.3)

    def smoothed(right: float, others: tuple[float, float]) -> float:
        spread = -sum(math.log(p) for p in (right, *others)) / 3
        return 0.7 * -math.log(right) + 0.3 * spread

    first = smoothed(0.5, (0.25, 0.25)) + smoothed(0.8, (0.1, 0.1))
    expected = torch.tensor([first, smoothed(0.6, (0.2, 0.2))])
    torch.testing.assert_close(found.smoothed, expected)
    torch.testing.assert_close(
        found.plain, cross_entropies(PROBABILITIES.log(), TARGETS, MASK).smoothed
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        (torch.float32, {"rtol": 1e-4, "atol": 1e-6}),
        (torch.float64, {}),
        (torch.bfloat16, {"rtol": 1e-2, "atol": 1e-6}),
    ],
    ids=str,
)
def test_equal_to_torchs_own_with_its_gradient(
    kind: torch.dtype, tolerance: dict[str, Any], smoothing: float
) -> None:
    torch.manual_seed(0)
    given = (5 * torch.randn(11, 13, 901)).to(kind)
    given[..., 7] = 90.0  # The probabilities of all others vanish.
    targets, mask = torch.randint(901, (11, 13)), torch.rand(11, 13) < 0.8
    weights = torch.randn(11, dtype=torch.promote_types(kind, torch.float32))
    ours, theirs = given.clone().requires_grad_(), given.double().requires_grad_()
    found = cross_entropies(ours, targets, mask, smoothing).smoothed
    expected = functional.cross_entropy(
        theirs.flatten(end_dim=1), targets.flatten(), reduction="none", label_smoothing=smoothing
    ).view(11, 13)
    expected = (expected * mask).sum(dim=1)
    torch.testing.assert_close(found, expected.to(found.dtype))
    (found @ weights).backward()
    (expected @ weights.double()).backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad.to(kind), **tolerance)


def test_the_gradient_by_differences() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    targets, mask = torch.randint(5, (2, 3)), torch.tensor([[True] * 3, [True, True, False]])
    for smoothing in (0.0, 0.3):
        assert torch.autograd.gradcheck(
            lambda x, e=smoothing: cross_entropies(x, targets, mask, e).smoothed, logits
        )


def test_the_plain_one_has_no_gradient() -> None:
    found = cross_entropies(PROBABILITIES.log().requires_grad_(), TARGETS, MASK, 0.1)
    assert found.smoothed.requires_grad
    assert not found.plain.requires_grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_counts_for_nothing(smoothing: float) -> None:
    given = PROBABILITIES.log()
    other, targets = given.clone(), TARGETS.clone()
    other[1, 1] = torch.tensor([100.0, -50.0, 3.0])
    targets[1, 1] = 2
    variable = other.clone().requires_grad_()
    found = cross_entropies(variable, targets, MASK, smoothing).smoothed
    assert torch.equal(found.detach(), cross_entropies(given, TARGETS, MASK, smoothing).smoothed)
    found.sum().backward()
    assert variable.grad is not None
    assert torch.equal(variable.grad[1, 1], torch.zeros(3))
    assert (variable.grad[0].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_half_precision_is_summed_in_full(smoothing: float) -> None:
    half = PROBABILITIES.log().bfloat16()
    found = cross_entropies(half, TARGETS, MASK, smoothing).smoothed
    assert found.dtype == torch.float32
    assert torch.equal(found, cross_entropies(half.float(), TARGETS, MASK, smoothing).smoothed)


def test_a_batch_of_nothing_has_a_gradient_of_nothing() -> None:
    logits = torch.zeros(0, 4, 3, requires_grad=True)
    nothing = torch.zeros(0, 4)
    cross_entropies(logits, nothing.long(), nothing.bool(), 0.1).smoothed.sum().backward()
    assert logits.grad is not None
    assert logits.grad.shape == logits.shape
