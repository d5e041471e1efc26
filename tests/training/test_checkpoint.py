"""A checkpoint holds all that a run goes on from, and is whole or not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from samples import Patch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.training import checkpoint
from captioner.training.checkpoint import (
    Position,
    load_checkpoint,
    random_state,
    save_checkpoint,
)

POSITION = Position(2, 3, 13, [0.1, 1 / 3], {"loss": 0.1 + 0.2})
CPU = torch.device("cpu")
DEVICES = [
    CPU,
    pytest.param(
        torch.device("cuda"),
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
        ],
    ),
]


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


def save(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, processes: int = 1
) -> None:
    device = next(model.parameters()).device
    states = [random_state(device) for _ in range(processes)]
    save_checkpoint(path, model, optimizer, POSITION, {}, states)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    found = dict(model.state_dict())
    for index, (_, state) in enumerate(optimizer.state.items()):
        found |= {f"{index}.{name}": value for name, value in state.items()}
    return {name: tensor.clone() for name, tensor in found.items()}


def rewrite(path: Path, tensors: dict[str, Tensor | None], **header: str | None) -> None:
    """Replace some tensors and fields of the header, or remove them: None."""
    with safe_open(path, "pt") as file:
        header = {**file.metadata(), **header}
    found = {**load_file(path), **tensors}
    kept = {name: tensor.clone() for name, tensor in found.items() if tensor is not None}
    save_file(kept, path, {name: text for name, text in header.items() if text is not None})


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The checkpoint of a network after a step."""
    model, optimizer = make()
    step(model, optimizer)
    save(tmp_path / "last.safetensors", model, optimizer)
    return tmp_path / "last.safetensors"


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_everything_comes_back_bit_for_bit(tmp_path: Path, device: torch.device) -> None:
    path = tmp_path / "last.safetensors"
    model, optimizer = make(device=device)
    for _ in range(3):
        step(model, optimizer)
    save(path, model, optimizer)
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


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        *((damage, "cannot be read") for damage in (lambda _: b"", cut, lambda _: b"PK\x03\x04")),
        ({"format": None}, "is not a checkpoint of a training run"),
        ({"processes": "2"}, "is of a run of 2 processes, not of 1"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_nothing_is_filled(
    path: Path, damage: Callable[[bytes], bytes] | dict[str, Any], sentence: str
) -> None:
    if isinstance(damage, dict):
        rewrite(path, damage.pop("tensors", {}), **damage)
    else:
        path.write_bytes(damage(path.read_bytes()))
    model, optimizer = make(seed=1)
    before = state_of(model, optimizer)
    with pytest.raises(UserError, match=rf"{path} {sentence}"):
        load_checkpoint(path, model, optimizer, {})
    assert_equal(state_of(model, optimizer), before)


def test_a_checkpoint_of_another_model_is_refused(path: Path) -> None:
    wider, wider_optimizer = make(size=4)
    before = state_of(wider, wider_optimizer)
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'model\.0\.bias'"):
        load_checkpoint(path, wider, wider_optimizer, {})
    assert_equal(state_of(wider, wider_optimizer), before)
    model, _ = make()
    longer = nn.Sequential(*model.children(), nn.Linear(1, 1))
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'model\.3\.bias'"):
        load_checkpoint(path, longer, torch.optim.AdamW(longer.parameters()), {})
    # The same tensors, but the optimiser holds them in another order.
    reordered = torch.optim.AdamW(list(model.parameters())[::-1])
    with pytest.raises(UserError, match="belongs to another model: state 'optimizer"):
        load_checkpoint(path, model, reordered, {})


@pytest.mark.parametrize("error", [SafetensorError("No space left"), OSError(28, "No space left")])
def test_a_full_disk_leaves_the_checkpoint_that_was_there(
    path: Path, monkeypatch: Patch, error: Exception
) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half of it")
        raise error

    before = path.read_bytes()
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(UserError, match=r"cannot write .*last\.safetensors: No space left"):
        save(path, *make(seed=5))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_a_checkpoint_that_was_loaded_is_let_go(path: Path) -> None:
    """Windows replaces no file that is open."""
    load_checkpoint(path, *make(1), {})
    assert str(path) not in Path("/proc/self/maps").read_text()
