"""Failed steps, whose checkpoint stays whole; the optimisers, the schedule, the average."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training_samples import Data, at, content_of, raising, run, spoiled, trainer_of

from captioner.errors import UserError
from captioner.training.config import TrainingConfig
from captioner.training.loop import Trainer
from captioner.training.optimizer import Average, learning_rate_factor, make_optimizer

NO_NUMBER = "the model's output is not a number, or too large for one, at step 6, in epoch 2: lower"
NO_MEMORY = (
    r"not enough memory on cpu for step 6, in epoch 2: lower training\.batch_size "
    r"\(data\.batch_tokens of translation\), or cut the steps by training\.accumulate"
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("the output is not a number"), NO_NUMBER),
        (torch.OutOfMemoryError("CUDA out of memory."), NO_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublas"), NO_MEMORY),
        (UserError("photo 7 is gone"), "photo 7 is gone"),
        (RuntimeError("The size must match"), "The size must match"),  # A mistake in the program.
    ],
)
def test_an_error_in_a_step_is_a_sentence(tmp_path: Path, error: Exception, sentence: str) -> None:
    kind = UserError if isinstance(error, UserError) else (UserError, RuntimeError)
    with pytest.raises(kind, match=sentence):
        run(tmp_path, **spoiled(raising(error)))
    _, tensors = content_of(tmp_path)
    assert [name for name, tensor in tensors.items() if not tensor.isfinite().all()] == []


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


def trainer(model: nn.Module, folder: Path, precision: Any = "float16") -> Trainer:
    config = TrainingConfig(precision=precision, learning_rate=0.1, clip_norm=0.0)
    return trainer_of(model, config, folder)


def make_step(trainer: Trainer) -> None:
    """Make and count a step."""
    trainer.step([torch.ones(1, 2)])
    trainer.position.step += 1
    trainer.position.step_in_epoch += 1


def test_a_step_that_overflows_is_left_out_and_halves_the_scale(tmp_path: Path) -> None:
    model = Model(slope=1.0)  # Times the first scale, 65,536, it is above float16's 65,504.
    started, before = trainer(model, tmp_path), model.layer.weight.detach().clone()
    make_step(started)
    assert torch.equal(model.layer.weight, before)
    assert started.scaler.get_scale() == 32_768
    make_step(started)
    torch.testing.assert_close(model.layer.weight.detach(), before - 0.1)  # Adam's first step.
    assert started.reports.sums()["gradient_norm"] == pytest.approx(3**0.5, rel=1e-3)


def test_gradients_that_overflow_at_any_scale_are_a_failure(tmp_path: Path) -> None:
    started = trainer(Model(slope=1e30), tmp_path)
    for _ in range(17):  # Down to a scale of a half.
        make_step(started)
    with pytest.raises(UserError, match="the norm of the gradient is inf at step 18, in epoch 1"):
        make_step(started)


def test_a_gpu_s_failure_is_seen_some_steps_later_and_its_step_is_named(tmp_path: Path) -> None:
    model = Model(slope=1.0)
    model.dtype = torch.float32
    started = trainer(model, tmp_path, "float32")
    started.reports.most_unseen = 3
    for slope in (1.0, math.inf, 1.0):
        model.slope = slope
        make_step(started)
    with pytest.raises(UserError, match="the norm of the gradient is inf at step 2, in epoch 1"):
        make_step(started)
    assert started.position.step == 3


def test_small_gradients_do_not_vanish(tmp_path: Path) -> None:
    started = trainer(Model(slope=1e-9), tmp_path)  # Below float16's smallest number, 6e-8.
    make_step(started)
    assert started.reports.sums()["gradient_norm"] == pytest.approx(1e-9 * 3**0.5, rel=0.01)


# The optimisers, the learning rate over the steps, and the moving average of the weights


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


def factors(steps: int, scores: list[list[float]] | None = None, **options: Any) -> list[float]:
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
        ([(0, -9), (0, -9), (0, -8), (0, -8), (0, -7)], 1.0),  # a lower perplexity is better
        ([(0, -9), (0, -9), (0, -10)], 0.1),
    ],
)
def test_plateau_by_hand(scores: list[Any], factor: float) -> None:
    options: dict[str, Any] = {"schedule": "plateau", "decay_factor": 0.1, "decay_patience": 2}
    deciding = [[*score] if isinstance(score, tuple) else [score, 0.0] for score in scores]
    assert factors(6, deciding, **options)[5] == pytest.approx(factor)


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
