"""Cross-entropy by numbers worked out by hand, against torch's own, and what padding may not do."""

import math

import pytest
import torch

from captioner.decoding.protocol import cross_entropies

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
