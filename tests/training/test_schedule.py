from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.training.config import TrainingConfig
from captioner.training.optimization import learning_rate_factor, validations_since_best

SCORES = st.lists(st.integers(0, 5).map(float), max_size=12)


def factors(config: TrainingConfig, steps: int, scores: list[float] | None = None) -> list[float]:
    return [learning_rate_factor(config, step, steps, scores or []) for step in range(steps)]


def test_constant() -> None:
    assert factors(TrainingConfig(schedule="constant"), 4, [3, 2, 1, 0, 0, 0, 0]) == [1.0] * 4


def test_warmup_rises_to_one() -> None:
    config = TrainingConfig(schedule="constant", warmup_steps=4)
    assert factors(config, 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_one_to_zero_behind_the_last_step() -> None:
    expected = [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]
    assert factors(TrainingConfig(schedule="cosine"), 4) == pytest.approx(expected)
    assert learning_rate_factor(TrainingConfig(schedule="cosine"), 4, 4, []) == pytest.approx(0)


def test_cosine_begins_behind_the_warmup() -> None:
    config = TrainingConfig(schedule="cosine", warmup_steps=2)
    assert factors(config, 6)[:2] == [0.5, 1.0]
    assert factors(config, 6)[2:] == pytest.approx(factors(TrainingConfig(schedule="cosine"), 4))


@pytest.mark.parametrize(
    ("scores", "factor"),
    [
        ([], 1.0),
        ([1], 1.0),
        ([1, 1], 1.0),  # as good is not better
        ([1, 1, 0.5], 0.1),
        ([1, 1, 2, 2], 1.0),
        ([1, 1, 0.5, 0.5], 0.1),
        ([1, 1, 0.5, 0.9, 0.5], 0.01),
        ([1, 0, 0, 2, 0, 0, 3], 0.01),
    ],
)
def test_plateau_by_hand(scores: list[float], factor: float) -> None:
    config = TrainingConfig(schedule="plateau", decay_factor=0.1, decay_patience=2)
    assert learning_rate_factor(config, 5, 10, scores) == pytest.approx(factor)


@given(SCORES)
def test_validations_since_best(scores: list[float]) -> None:
    found = validations_since_best(scores)
    if not scores:
        assert found == 0
    else:
        best = len(scores) - 1 - found
        assert scores[best] == max(scores)
        assert all(score < scores[best] for score in scores[:best])


def test_weight_decay_is_of_adam() -> None:
    with pytest.raises(UserError, match="weight_decay is of the optimizer adam"):
        TrainingConfig(optimizer="rmsprop", weight_decay=0.1)


def test_inverse_square_root() -> None:
    """Vaswani et al. 2017, equation 3, as a share of its highest."""
    config = TrainingConfig(schedule="inverse_square_root", warmup_steps=4)
    found = [learning_rate_factor(config, step, 100, []) for step in (0, 1, 3, 4, 15, 63)]
    assert found == pytest.approx([0.25, 0.5, 1.0, (4 / 5) ** 0.5, 0.5, 0.25])
    for step in range(20):
        paper = min((step + 1) ** -0.5, (step + 1) * 4**-1.5) / 4**-0.5
        assert learning_rate_factor(config, step, 100, []) == pytest.approx(paper)
