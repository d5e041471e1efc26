"""Two examples that can be followed with pencil and paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from captioner.attention import Attention, DotScore, Memory, ScaledDotProductScore


def test_a_decoder_state_looks_at_four_annotations() -> None:
    state = torch.tensor([[[5.0, 1.0, 20.0]]], dtype=torch.float64)
    annotations = torch.tensor(
        [[[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]]], dtype=torch.float64
    )
    attention = Attention(DotScore())
    attended = attention(state, attention.remember(annotations))
    assert attended.scores.flatten().tolist() == [927.0, 397.0, 148.0, 929.0]
    first = 1 / (1 + math.exp(2))  # the two others are some 500 behind
    weights = attended.weights.flatten()
    assert weights.tolist() == pytest.approx([first, 0.0, 0.0, 1 - first], abs=1e-12)
    assert [round(weight, 2) for weight in weights.tolist()] == [0.12, 0.0, 0.0, 0.88]
    expected = [
        first * 3 + (1 - first) * 4,  # 3.8808
        first * 12 + (1 - first) * 3,  # 4.0728
        first * 45 + (1 - first) * 45.3,  # 45.2642
    ]
    assert attended.context.flatten().tolist() == pytest.approx(expected)
    assert expected == pytest.approx([3.8808, 4.0728, 45.2642], abs=1e-4)


def test_four_words_look_at_each_other() -> None:
    words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    random = np.random.RandomState(42)  # the numbers of numpy.random.seed(42)
    w_query, w_key, w_value = (random.randint(3, size=(3, 3)) for _ in range(3))
    queries, keys, values = (
        torch.tensor(words @ weight, dtype=torch.float64)[None]
        for weight in (w_query, w_key, w_value)
    )
    attended = Attention(ScaledDotProductScore())(queries, Memory(values, keys))
    expected_scores = (words[0] @ w_query) @ (words @ w_key).T / math.sqrt(3)
    assert attended.scores[0, 0].tolist() == pytest.approx(expected_scores.tolist())
    assert attended.context[0, 0].tolist() == pytest.approx(
        [0.98522025, 1.74174051, 0.75652026], abs=5e-9
    )
    torch.testing.assert_close(
        attended.context,
        torch.nn.functional.scaled_dot_product_attention(queries, keys, values),
    )
