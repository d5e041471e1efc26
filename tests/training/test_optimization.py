"""The optimisers, the learning rate over the steps, and the moving average of the weights."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from captioner.training.config import TrainingConfig
from captioner.training.optimization import Average, learning_rate_factor, make_optimizer


def test_rmsprop_is_that_of_graves() -> None:
    """Equations 38 to 45 of Graves 2013, step by step, for one weight."""
    weight = nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    model = nn.ParameterDict({"weight": weight})
    optimizer = make_optimizer(model, TrainingConfig(optimizer="rmsprop", learning_rate=1e-2))
    mean = square = change = 0.0
    expected = 0.5
    for gradient in (0.3, -0.2, 0.7, 0.7):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
        square = 0.95 * square + 0.05 * gradient**2
        mean = 0.95 * mean + 0.05 * gradient
        change = 0.9 * change - 1e-2 * gradient / (math.sqrt(square - mean**2) + 1e-2)
        expected += change
        assert float(weight.detach()) == pytest.approx(expected, rel=1e-9)


def test_adam_is_fused_and_decays_the_matrices_decoupled() -> None:
    """Biases, normalisation and embeddings keep their size."""
    model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 2), nn.LayerNorm(2))
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.1, learning_rate=0.01))
    assert optimizer.defaults["fused"]
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, weight in model.named_parameters():
        factor = 1 - 0.01 * 0.1 if name == "1.weight" else 1.0
        torch.testing.assert_close(weight.detach(), before[name] * factor)


def factors(steps: int, scores: list[float] | None = None, **options: Any) -> list[float]:
    config = TrainingConfig(**options)
    return [learning_rate_factor(config, step, steps, scores or []) for step in range(steps)]


def test_constant_after_a_warmup_or_cosine_to_zero_behind_the_last_step() -> None:
    assert factors(6, schedule="constant", warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    expected = [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]
    assert factors(4, schedule="cosine") == pytest.approx(expected)
    assert learning_rate_factor(TrainingConfig(schedule="cosine"), 4, 4, []) == pytest.approx(0)
    assert factors(6, schedule="cosine", warmup_steps=2) == pytest.approx([0.5, 1.0, *expected])


@pytest.mark.parametrize(
    ("scores", "factor"),
    [
        ([], 1.0),
        ([1, 1], 1.0),  # as good is not better
        ([1, 1, 0.5], 0.1),
        ([1, 1, 2, 2], 1.0),
        ([1, 1, 0.5, 0.9, 0.5], 0.01),
        ([1, 0, 0, 2, 0, 0, 3], 0.01),
    ],
)
def test_plateau_by_hand(scores: list[float], factor: float) -> None:
    options: dict[str, Any] = {"schedule": "plateau", "decay_factor": 0.1, "decay_patience": 2}
    assert factors(6, scores, **options)[5] == pytest.approx(factor)


def test_inverse_square_root() -> None:
    """Vaswani et al. 2017, equation 3, as a share of its highest."""
    found = factors(64, schedule="inverse_square_root", warmup_steps=4)
    assert found[15] == pytest.approx(0.5)
    for step, factor in enumerate(found):
        paper = min((step + 1) ** -0.5, (step + 1) * 4**-1.5) / 4**-0.5
        assert factor == pytest.approx(paper)


def test_the_average_by_hand() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 5.0)
    average = Average(layer, 0.15)
    nn.init.constant_(layer.weight, 1.0)
    average.update(0)  # With 1 / 10, which is less than 0.15.
    assert float(average.tensors["weight"]) == pytest.approx(0.1 * 5 + 0.9 * 1)
    nn.init.constant_(layer.weight, 2.0)
    average.update(1)  # 2 / 11 is more.
    expected = pytest.approx(0.15 * 1.4 + 0.85 * 2)
    assert float(average.tensors["weight"]) == expected
    with average.in_use():
        assert float(layer.weight.detach()) == expected
    assert float(layer.weight.detach()) == 2.0
    assert float(average.tensors["weight"]) == expected
    # Neither frozen weights nor buffers are averaged.
    layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    layers[0].requires_grad_(False)
    assert set(Average(layers, 0.5).tensors) == {"1.weight", "1.bias"}
