"""Local attention by hand: Luong et al. 2015, section 3.2, equations 7 to 10."""

from __future__ import annotations

import math

import pytest
import torch

from captioner.attention.attention import Attention, LocalAttention, PredictedCentre
from captioner.attention.scores import DotScore


def softmax(*scores: float) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def test_windows_around_whole_and_broken_centres() -> None:
    attention = LocalAttention(DotScore(), half_width=1)
    memory, centres = attention.remember(torch.ones(1, 5, 2)), torch.tensor([[0.0, 2.0, 2.5, 4.0]])
    windows = attention(torch.ones(1, 4, 2), memory, centres).weights > 0
    assert windows[0].int().tolist() == [
        [1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 0],  # 1.5 to 3.5
        [0, 0, 0, 1, 1],
    ]


def test_monotonic_weights_sum_to_one_over_the_window() -> None:
    values = torch.tensor([[[1.0], [2.0], [-1.0], [0.5], [3.0]]])
    attention = LocalAttention(DotScore(), half_width=1)
    query = torch.tensor([[[1.0], [1.0]]])
    attended = attention(query, attention.remember(values), torch.tensor([[0, 2]]))
    first, second = softmax(1, 2), softmax(2, -1, 0.5)
    assert attended.weights[0, 0].tolist() == pytest.approx([*first, 0, 0, 0], abs=1e-6)
    assert attended.weights[0, 1].tolist() == pytest.approx([0, *second, 0], abs=1e-6)
    expected = second[0] * 2 + second[1] * -1 + second[2] * 0.5
    assert attended.context[0, 1, 0].item() == pytest.approx(expected, abs=1e-6)


def test_predicted_weights_favour_the_centre() -> None:
    """Equation 10, with D = 2 and so sigma = 1: not made to sum to one again."""
    values = torch.tensor([[[1.0], [2.0], [-1.0], [0.5], [3.0]]])
    attention = LocalAttention(DotScore(), half_width=2, favour_centre=True)
    attended = attention(torch.ones(1, 1, 1), attention.remember(values), torch.tensor([[2.6]]))
    align = dict(zip((1, 2, 3, 4), softmax(2, -1, 0.5, 3), strict=True))  # 0.6 to 4.6
    expected = [0.0] + [align[s] * math.exp(-((s - 2.6) ** 2) / (2 * 1.0**2)) for s in (1, 2, 3, 4)]
    assert attended.weights[0, 0].tolist() == pytest.approx(expected, abs=1e-6)
    assert attended.weights.sum() < 1


def test_a_predicted_centre() -> None:
    """Equation 9: p = S sigmoid(v . tanh(W h)), with S of the sentence and not of the batch."""
    centre = PredictedCentre(query_size=2, size=2)
    with torch.no_grad():
        centre.projection.weight.copy_(torch.tensor([[1.0, 0.0], [0.5, -1.0]]))
        centre.energy.weight.copy_(torch.tensor([[2.0, 1.0]]))
    memory = Attention(DotScore()).remember(
        torch.zeros(2, 5, 2), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    )
    query = torch.tensor([[[0.3, -0.2]], [[0.3, -0.2]]])
    inside = 2 * math.tanh(0.3) + math.tanh(0.5 * 0.3 + 0.2)
    share = 1 / (1 + math.exp(-inside))
    assert centre(query, memory).flatten().tolist() == pytest.approx([5 * share, 3 * share])


def test_a_window_beyond_the_sentence_is_at_its_end() -> None:
    values = torch.randn(1, 6, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, True, False, False, False]])
    attention = LocalAttention(DotScore(), half_width=1)
    attended = attention(
        torch.ones(1, 2, 3), attention.remember(values, mask), torch.tensor([[9, 3]])
    )
    assert attended.weights[0, 0].tolist() == attended.weights[0, 1].tolist()
    assert (attended.weights[0, 0] > 0).tolist() == [False, False, True, False, False, False]


def test_a_gradient_reaches_the_centre() -> None:
    centres = torch.tensor([[1.3]], requires_grad=True)
    attention = LocalAttention(DotScore(), half_width=2, favour_centre=True)
    values = torch.arange(12.0).view(1, 4, 3) / 10
    attention(torch.ones(1, 1, 3), attention.remember(values), centres).context.sum().backward()
    assert centres.grad is not None
    assert centres.grad.abs().item() > 0
