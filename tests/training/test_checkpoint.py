"""A checkpoint holds all that a run goes on from, and is whole or not there."""

from functools import partial
from pathlib import Path

import pytest
import torch
from gpu_samples import DEVICE, needs_gpu
from safetensors.torch import save
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.training.checkpoint import (
    FORMAT,
    Position,
    load_checkpoint,
    random_state,
    save_checkpoint,
)

POSITION = Position(2, 3, 13, [[0.1, -1 / 3], [0.0, float("-inf")]], {"loss": 0.1 + 0.2})
CPU, ONE = torch.device("cpu"), {"weight": torch.zeros(1)}
DEVICES = [CPU, pytest.param(DEVICE, marks=needs_gpu)]


def make(
    seed: int = 0, size: int = 3, device: torch.device = CPU
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small network with batch normalisation, its images channel by channel last."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, size, 3), nn.BatchNorm2d(size), nn.Dropout(0.5))
    model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    inputs = torch.randn(4, 2, 5, 5).to(next(model.parameters()).device)
    model(inputs).square().sum().backward()
    optimizer.step()


def keep(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = random_state(next(model.parameters()).device)
    save_checkpoint(path, model, optimizer, POSITION, {}, [state])


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    found = dict(model.state_dict())
    for index, (_, state) in enumerate(optimizer.state.items()):
        found |= {f"{index}.{name}": value for name, value in state.items()}
    return {name: tensor.clone() for name, tensor in found.items()}


assert_equal = partial(torch.testing.assert_close, rtol=0, atol=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    model, optimizer = make()
    step(model, optimizer)
    keep(tmp_path / "last.safetensors", model, optimizer)
    return tmp_path / "last.safetensors"


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_everything_comes_back_bit_for_bit(tmp_path: Path, device: torch.device) -> None:
    path = tmp_path / "last.safetensors"
    model, optimizer = make(device=device)
    for _ in range(3):
        step(model, optimizer)
    keep(path, model, optimizer)
    before = state_of(model, optimizer)
    for _ in range(2):
        step(model, optimizer)  # draws dropout and inputs from torch's own generators
    expected, drawn = state_of(model, optimizer), torch.rand(3)

    other, other_optimizer = make(seed=99, device=device)
    assert load_checkpoint(path, other, other_optimizer, {}) == POSITION
    assert_equal(state_of(other, other_optimizer), before)
    for _ in range(2):
        step(other, other_optimizer)
    assert_equal(state_of(other, other_optimizer), expected)
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cannot be read"),
        (b"PK\x03\x04", "cannot be read"),
        (save(ONE, {}), "is not a checkpoint of a training run"),
        (
            save(ONE, {"format": "captioner checkpoint 1"}),
            "is not .* of a training run by this version",
        ),
        (save(ONE, {"format": FORMAT, "processes": "2"}), "is of a run of 2 processes, not of 1"),
    ],
)
def test_a_damaged_checkpoint_is_refused(path: Path, content: bytes, sentence: str) -> None:
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path} {sentence}"):
        load_checkpoint(path, *make(seed=1), {})


def test_a_checkpoint_of_another_model_is_refused_and_nothing_is_filled(path: Path) -> None:
    wider, wider_optimizer = make(size=4)
    before = state_of(wider, wider_optimizer)
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'model\.0\.bias'"):
        load_checkpoint(path, wider, wider_optimizer, {})
    assert_equal(state_of(wider, wider_optimizer), before)


def test_the_state_of_other_parameters_is_refused(path: Path) -> None:
    model, _ = make()
    for parameters in ([model[0].weight], [model[0].bias, model[0].weight]):  # type: ignore[index]
        optimizer = torch.optim.AdamW(parameters)
        with pytest.raises(UserError, match=r"belongs to another model: state 'optimizer\."):
            load_checkpoint(path, model, optimizer, {})
