"""What goes wrong in a step is one sentence, and the last checkpoint stays whole."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from samples import Patch
from torch import Tensor, nn
from training_samples import STEPS, Data, at, content_of, make_model, raising, run

from captioner.errors import UserError
from captioner.training.checkpoint import Position
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine
from captioner.training.optimization import make_optimizer
from captioner.training.step import Part, Stepper

NO_NUMBER = "the model's output is not a number, or too large for one, at step 6, in epoch 2: lower"
NO_MEMORY = (
    r"not enough memory on cpu for step 6, in epoch 2: lower training\.batch_size "
    r"\(data\.batch_tokens of translation\), or cut the steps into parts by training\.accumulate"
)


def run_failing(folder: Path, error: Exception, **options: Any) -> None:
    model = make_model()
    run(folder, Data(at(1, 1, partial(model.add_to_loss, raising(error)))), model=model, **options)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("the output is not a number"), NO_NUMBER),
        (torch.OutOfMemoryError("CUDA out of memory."), NO_MEMORY),
        (RuntimeError("MPS backend out of memory (MPS allocated: 18 GB)"), NO_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublas"), NO_MEMORY),
        (UserError("photo 7 is gone"), "photo 7 is gone"),
    ],
)
def test_what_a_forward_pass_raises_is_a_sentence(
    tmp_path: Path, error: Exception, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        run_failing(tmp_path, error)
    _, tensors = content_of(tmp_path)
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_an_encoder_of_the_data_may_lack_memory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=NO_MEMORY):
        run(tmp_path, Data(at(1, 1, raising(torch.OutOfMemoryError("CUDA out of memory.")))))


def test_what_the_compiler_lacks_is_said_in_a_line(tmp_path: Path) -> None:
    """The first line of some of its errors names the backend only."""
    kind = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    error = kind("backend='inductor' raised:\nCppCompileError: no header\nCommand:\ng++ a.cpp")
    with pytest.raises(UserError, match=r"raised: CppCompileError: no header$"):
        run_failing(tmp_path, error, compile=True)


def test_a_mistake_in_the_program_is_not_called_a_loss(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        run_failing(tmp_path, RuntimeError("The size must match the size of tensor b"))


def test_weights_that_are_lost_are_not_saved(tmp_path: Path) -> None:
    """The loss and its gradient may be numbers for a step more."""
    sentence = "a weight is not a number, or too large for one, at step 1, in "
    with pytest.raises(UserError, match=sentence):
        run(tmp_path, learning_rate=1e30, epochs=1, checkpoint_seconds=0.0)
    assert not (tmp_path / "last.safetensors").exists()


# As on a GPU: a step waits for nothing, and a failure is found at the end of the epoch.


@pytest.fixture
def without_waiting(monkeypatch: Patch) -> None:
    made = Stepper.__init__

    def init(self: Stepper, *given: Any) -> None:
        made(self, *given)
        self._is_synchronous = False

    monkeypatch.setattr(Stepper, "__init__", init)


@pytest.mark.usefixtures("without_waiting")
@pytest.mark.parametrize("options", [{}, {"optimizer": "rmsprop"}, {"average": 0.9}])
def test_where_a_step_waits_for_nothing_its_weights_stay_numbers(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """The failure is that of the first step that failed."""
    model = make_model()
    seen: list[bool] = []

    def spoil(epoch: int, step: int, rank: int) -> None:
        model.extra = lambda: torch.nan if (epoch, step) == (1, 1) else 0.0
        seen.append(all(bool(each.isfinite().all()) for each in model.parameters()))

    with pytest.raises(UserError, match=r"the loss is nan and .* at step 6, in epoch 2"):
        run(tmp_path, Data(spoil), model=model, **options)
    assert seen == [True] * 2 * STEPS
    assert content_of(tmp_path)[0]["step"] == STEPS


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_where_a_step_waits_for_nothing_a_sound_run_is_the_same(
    tmp_path: Path, request: pytest.FixtureRequest, optimizer: str
) -> None:
    run(tmp_path / "waiting", optimizer=optimizer)
    request.getfixturevalue("without_waiting")
    run(tmp_path / "not", optimizer=optimizer)
    (_, expected), (_, found) = (content_of(tmp_path / name) for name in ("waiting", "not"))
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


# float16: gradients are scaled, and steps that overflow are left out.


class Model(nn.Module):
    """The gradient of its product is `slope`; the weight's own, `of_weight`."""

    def __init__(self, slope: float, of_weight: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.slope, self.of_weight = slope, of_weight

    def loss(self, batch: Tensor) -> dict[str, Tensor]:
        product = self.layer(batch)
        assert product.dtype == torch.float16
        loss = product.float().mean() * self.slope
        return {"loss": loss + (self.layer.weight * self.of_weight).sum()}


def stepper_of(model: nn.Module) -> Stepper:
    config = TrainingConfig(precision="float16", learning_rate=0.1, clip_norm=0.0)
    return Stepper(model, make_optimizer(model, config), config, Engine(), Position())


STEP: list[Part] = [(torch.ones(1, 2), 1.0)]


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
    with pytest.raises(UserError, match="the norm of its gradient inf at step 18, in epoch 1"):
        stepper.make(STEP)


def test_a_norm_that_overflows_though_no_gradient_does_is_a_failure_at_once() -> None:
    model = Model(slope=0.0, of_weight=1e20)
    before = model.layer.weight.detach().clone()
    with pytest.raises(UserError, match="the norm of its gradient inf at step 1, in epoch 1"):
        stepper_of(model).make(STEP)
    assert torch.equal(model.layer.weight, before)


def test_small_gradients_do_not_vanish() -> None:
    stepper = stepper_of(Model(slope=1e-9))  # Below float16's smallest number, 6e-8.
    stepper.make(STEP)
    assert stepper.sums()["gradient_norm"] == pytest.approx(1e-9 * 3**0.5, rel=0.01)
