"""Training in float16: gradients are scaled, and steps that overflow are left out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.training import Engine, MicroBatch, Step, TrainingConfig
from captioner.training.optimization import make_optimizer
from captioner.training.step import Stepper


class Model(nn.Module):
    """The gradient of its product is `slope`."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.slope = slope

    def loss(self, batch: Tensor) -> dict[str, Tensor]:
        product = self.layer(batch)
        assert product.dtype == torch.float16
        return {"loss": product.float().mean() * self.slope}


def stepper_of(model: nn.Module) -> Stepper:
    config = TrainingConfig(precision="float16", learning_rate=0.1, clip_norm=0.0)
    optimizer = make_optimizer(model, config)
    return Stepper(model, optimizer, config, Engine(), Path("absent"))


BATCH = Step([MicroBatch(torch.ones(1, 2), 1)], 1)


def test_a_step_that_overflows_is_left_out_and_the_next_has_half_the_scale() -> None:
    model = Model(slope=1.0)  # Times the first scale, 65,536, it is above float16's 65,504.
    stepper, before = stepper_of(model), model.layer.weight.detach().clone()
    stepper.make(BATCH, 0, 0)
    assert torch.equal(model.layer.weight, before)
    assert stepper.scaling["scale"] == 32_768
    stepper.make(BATCH, 1, 0)
    torch.testing.assert_close(model.layer.weight.detach(), before - 0.1)  # Adam's first step.
    assert stepper.sums()["gradient_norm"] == pytest.approx(3**0.5, rel=1e-3)


def test_gradients_that_overflow_at_any_scale_are_a_failure() -> None:
    stepper = stepper_of(Model(slope=1e30))
    for number in range(17):  # Down to a scale of a half.
        stepper.make(BATCH, number, 0)
    with pytest.raises(UserError, match="the norm of its gradient inf at step 18, in epoch 1"):
        stepper.make(BATCH, 17, 0)


def test_a_norm_that_overflows_though_no_gradient_does_is_a_failure_at_once() -> None:
    class Large(Model):
        def loss(self, batch: Tensor) -> dict[str, Tensor]:
            return {"loss": (self.layer.weight * 1e20).sum()}

    model = Large(slope=1.0)
    before = model.layer.weight.detach().clone()
    with pytest.raises(UserError, match="the norm of its gradient inf at step 1, in epoch 1"):
        stepper_of(model).make(BATCH, 0, 0)
    assert torch.equal(model.layer.weight, before)


def test_small_gradients_do_not_vanish() -> None:
    model = Model(slope=1e-9)  # Below float16's smallest number, 6e-8.
    stepper = stepper_of(model)
    stepper.make(BATCH, 0, 0)
    assert stepper.sums()["gradient_norm"] == pytest.approx(1e-9 * 3**0.5, rel=0.01)
