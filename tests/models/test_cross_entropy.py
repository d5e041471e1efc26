"""Cross-entropy by hand, and what padding may not do."""

import pytest
import torch

from captioner.models.cross_entropy import cross_entropies

PROBABILITIES = torch.tensor(
    [[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6], [0.9, 0.05, 0.05]]]
)  # (B, T, V) = (2, 2, 3)
TARGETS = torch.tensor([[0, 1], [2, 0]])
MASK = torch.tensor([[True, True], [True, False]])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_by_hand(smoothing: float) -> None:
    # Softmax takes no notice of constants: logits are log-probabilities plus any number.
    found = cross_entropies(PROBABILITIES.log() + 7, TARGETS, MASK, smoothing)
    right = torch.tensor([[0.5, 0.8], [0.6, 1.0]]).log()  # (B, T), the last of padding
    spread = PROBABILITIES.log().mean(dim=-1) * MASK
    expected = (1 - smoothing) * right.sum(dim=1) + smoothing * spread.sum(dim=1)
    torch.testing.assert_close(found, (-expected, -right.sum(dim=1)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_counts_for_nothing(smoothing: float) -> None:
    given = PROBABILITIES.log()
    other, targets = given.clone(), TARGETS.clone()
    other[1, 1] = torch.tensor([100.0, -50.0, 3.0])
    targets[1, 1] = 2
    variable = other.clone().requires_grad_()
    found = cross_entropies(variable, targets, MASK, smoothing)[0]
    assert torch.equal(found.detach(), cross_entropies(given, TARGETS, MASK, smoothing)[0])
    half = cross_entropies(given.bfloat16(), TARGETS, MASK, smoothing)[0]  # Summed in full.
    assert torch.equal(half, cross_entropies(given.bfloat16().float(), TARGETS, MASK, smoothing)[0])
    found.sum().backward()
    assert variable.grad is not None
    assert torch.equal(variable.grad[1, 1], torch.zeros(3))
    assert (variable.grad[0].abs().sum(dim=-1) > 0).all()
