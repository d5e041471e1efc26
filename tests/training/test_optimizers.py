"""The optimisers of a run."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from captioner.training import TrainingConfig
from captioner.training.optimization import make_optimizer


def test_rmsprop_is_that_of_graves() -> None:
    """Equations 38 to 45 of Graves 2013, step by step, for one weight."""
    weight = nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    model = nn.Module()
    model.register_parameter("weight", weight)
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


def test_adam_is_fused_and_decays_decoupled() -> None:
    model = nn.Linear(2, 2)
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.1, learning_rate=0.01))
    assert optimizer.defaults["fused"]
    before = model.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before * (1 - 0.01 * 0.1))
