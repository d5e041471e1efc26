"""The moving average of weights, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from captioner.training.optimization import Average


def module(value: float) -> nn.Linear:
    made = nn.Linear(1, 1, bias=False)
    nn.init.constant_(made.weight, value)
    return made


def put(layer: nn.Linear, value: float) -> None:
    nn.init.constant_(layer.weight, value)


def test_the_average_by_hand() -> None:
    layer = module(5.0)
    average = Average(layer, 0.15)
    put(layer, 1.0)
    average.update(0)  # With 1 / 10, which is less than 0.15.
    assert float(average.tensors["weight"]) == pytest.approx(0.1 * 5 + 0.9 * 1)
    put(layer, 2.0)
    average.update(1)  # 2 / 11 is more.
    assert float(average.tensors["weight"]) == pytest.approx(0.15 * 1.4 + 0.85 * 2)
    assert float(layer.weight.detach()) == 2.0


def test_it_is_in_use_for_a_while_only() -> None:
    layer = module(4.0)
    average = Average(layer, 0.5)
    put(layer, 1.0)
    with average.in_use():
        assert float(layer.weight.detach()) == 4.0
    assert float(layer.weight.detach()) == 1.0
    with pytest.raises(RuntimeError), average.in_use():
        raise RuntimeError
    assert float(layer.weight.detach()) == 1.0
    assert float(average.tensors["weight"]) == 4.0


def test_frozen_weights_and_buffers_are_left_alone() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    layers[0].requires_grad_(False)
    assert set(Average(layers, 0.5).tensors) == {"1.weight", "1.bias"}
    assert all(isinstance(each, torch.Tensor) for each in Average(layers, 0.5).tensors.values())
