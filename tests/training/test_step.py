"""What goes wrong in a step is one sentence, and the last checkpoint stays whole."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_samples import Data, at, content_of, raising, run, spoiled

from captioner.errors import UserError
from captioner.training.checkpoint import Position
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine
from captioner.training.optimization import make_optimizer
from captioner.training.step import Stepper

NO_NUMBER = "the model's output is not a number, or too large for one, at step 6, in epoch 2: lower"
NO_MEMORY = (
    r"not enough memory on cpu for step 6, in epoch 2: lower training\.batch_size "
    r"\(data\.batch_tokens of translation\), or cut the steps into parts by training\.accumulate"
)
COMPILER = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("the output is not a number"), NO_NUMBER),
        (torch.OutOfMemoryError("CUDA out of memory."), NO_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublas"), NO_MEMORY),
        (UserError("photo 7 is gone"), "photo 7 is gone"),
        (RuntimeError("The size must match"), "The size must match"),  # A mistake in the program.
        # The first line of some of the compiler's errors names the backend only.
        (COMPILER("'inductor' raised:\nno header\nCommand:\ng++ a.cpp"), "raised: no header$"),
    ],
)
def test_what_a_forward_pass_raises_is_a_sentence(
    tmp_path: Path, error: Exception, sentence: str
) -> None:
    kind = UserError if isinstance(error, UserError | COMPILER) else (UserError, RuntimeError)
    with pytest.raises(kind, match=sentence):
        run(tmp_path, **spoiled(raising(error)), compile=isinstance(error, COMPILER))
    _, tensors = content_of(tmp_path)
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_weights_that_are_lost_are_not_saved(tmp_path: Path) -> None:
    """The loss and its gradient may be numbers for a step more."""
    with pytest.raises(UserError, match=NO_MEMORY):  # Of an encoder in the data.
        run(tmp_path, Data(at(1, 1, raising(torch.OutOfMemoryError("CUDA out of memory.")))))
    (tmp_path / "last.safetensors").unlink()
    sentence = "a weight is not a number, or too large for one, at step 1, in "
    with pytest.raises(UserError, match=sentence):
        run(tmp_path, learning_rate=1e30, epochs=1, checkpoint_seconds=0.0)
    assert not (tmp_path / "last.safetensors").exists()


class Model(nn.Module):
    """The gradient of its product is `slope`."""

    dtype = torch.float16

    def __init__(self, slope: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.slope = slope

    def loss(self, batch: Tensor) -> dict[str, Tensor]:
        product = self.layer(batch)
        assert product.dtype == self.dtype
        return {"loss": product.float().mean() * self.slope}


def stepper_of(model: nn.Module, precision: Any = "float16") -> Stepper:
    config = TrainingConfig(precision=precision, learning_rate=0.1, clip_norm=0.0)
    return Stepper(model, make_optimizer(model, config), config, Engine(), Position())


STEP: list[Any] = [torch.ones(1, 2)]


def test_a_step_that_overflows_is_left_out_and_the_next_has_half_the_scale() -> None:
    model = Model(slope=1.0)  # Times the first scale, 65,536, it is above float16's 65,504.
    stepper, before = stepper_of(model), model.layer.weight.detach().clone()
    stepper.make(STEP)
    assert torch.equal(model.layer.weight, before)
    stepper.save_to_position()
    assert stepper.position.scaling["scale"] == 32_768
    stepper.make(STEP)
    torch.testing.assert_close(model.layer.weight.detach(), before - 0.1)  # Adam's first step.
    assert stepper.sums()["gradient_norm"] == pytest.approx(3**0.5, rel=1e-3)


def test_gradients_that_overflow_at_any_scale_are_a_failure() -> None:
    stepper = stepper_of(Model(slope=1e30))
    for _ in range(17):  # Down to a scale of a half.
        stepper.make(STEP)
    with pytest.raises(UserError, match="the norm of the gradient is inf at step 18, in epoch 1"):
        stepper.make(STEP)


def test_a_gpu_s_failure_is_seen_some_steps_later_and_its_step_is_named() -> None:
    model = Model(slope=1.0)
    model.dtype = torch.float32
    stepper = stepper_of(model, "float32")
    stepper.most_unseen = 3
    for slope in (1.0, math.inf, 1.0):
        model.slope = slope
        stepper.make(STEP)
    with pytest.raises(UserError, match="the norm of the gradient is inf at step 2, in epoch 1"):
        stepper.make(STEP)
    assert stepper.position.step == 3


def test_small_gradients_do_not_vanish() -> None:
    stepper = stepper_of(Model(slope=1e-9))  # Below float16's smallest number, 6e-8.
    stepper.make(STEP)
    assert stepper.sums()["gradient_norm"] == pytest.approx(1e-9 * 3**0.5, rel=0.01)
