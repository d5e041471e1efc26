"""A checkpoint holds all that a run goes on from, and is whole or not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
    check_checkpoint,
    load_checkpoint,
    save_checkpoint,
)

POSITION = Position(2, 3, 13, [0.1, 1 / 3], {"loss": 0.1 + 0.2})


def make(seed: int = 0, size: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small network with batch normalisation, its images channel by channel last."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, size, 3), nn.BatchNorm2d(size), nn.Dropout(0.5))
    model = model.to(memory_format=torch.channels_last)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor | None = None) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 2, 5, 5) if inputs is None else inputs).square().sum().backward()
    optimizer.step()


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


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    model, optimizer = make()
    for _ in range(3):
        step(model, optimizer)
    save_checkpoint(path, model, optimizer, POSITION)
    before = state_of(model, optimizer)
    for _ in range(2):
        step(model, optimizer)  # draws dropout and inputs from torch's own generator
    expected, drawn = state_of(model, optimizer), torch.rand(3)

    other, other_optimizer = make(seed=99)
    assert load_checkpoint(path, other, other_optimizer) == POSITION
    assert_equal(state_of(other, other_optimizer), before)
    for _ in range(2):
        step(other, other_optimizer)
    assert_equal(state_of(other, other_optimizer), expected)
    assert torch.equal(torch.rand(3), drawn)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"\xff" * 9 + content,
        lambda content: b"PK\x03\x04",
        None,
    ],
)
def test_a_damaged_or_missing_checkpoint_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    path = tmp_path / "last.safetensors"
    if damage is not None:
        save_checkpoint(path, *make(), POSITION)
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=rf"checkpoint {path} cannot be read"):
        load_checkpoint(path, *make())


@pytest.mark.parametrize(
    "position", [None, "", "[]", "3", '{"epoch": 1, "unknown": 2}', '{"epoch"']
)
def test_a_checkpoint_that_does_not_say_where_the_run_is(
    tmp_path: Path, position: str | None
) -> None:
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, *make(), POSITION)
    rewrite(path, {}, position=position)
    model, optimizer = make(seed=1)
    before = state_of(model, optimizer)
    with pytest.raises(UserError, match=f"checkpoint {path} is damaged"):
        load_checkpoint(path, model, optimizer)
    assert_equal(state_of(model, optimizer), before)


@pytest.mark.parametrize("random", [None, torch.zeros(5, dtype=torch.uint8), torch.zeros(5)])
def test_a_checkpoint_with_an_impossible_random_state(
    tmp_path: Path, random: Tensor | None
) -> None:
    path = tmp_path / "last.safetensors"
    save_checkpoint(path, *make(), POSITION)
    rewrite(path, {"random.cpu": random})
    with pytest.raises(UserError, match=f"checkpoint {path} is damaged"):
        load_checkpoint(path, *make())


def test_another_file_of_tensors_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"model.0.weight": torch.zeros(1)}, path)
    with pytest.raises(UserError, match=f"{path} is not a checkpoint of a training run"):
        load_checkpoint(path, *make())


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    model, optimizer = make()
    step(model, optimizer)
    save_checkpoint(path, model, optimizer, POSITION)
    wider, wider_optimizer = make(size=4)
    before = state_of(wider, wider_optimizer)
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'model\.0\.bias'"):
        load_checkpoint(path, wider, wider_optimizer)
    assert_equal(state_of(wider, wider_optimizer), before)
    longer = nn.Sequential(*model.children(), nn.Linear(1, 1))
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'model\.3\.bias'"):
        load_checkpoint(path, longer, torch.optim.AdamW(longer.parameters()))
    # The same tensors, but the optimiser holds them in another order.
    reordered = torch.optim.AdamW(list(model.parameters())[::-1])
    with pytest.raises(UserError, match="belongs to another model: state 'optimizer"):
        load_checkpoint(path, model, reordered)


@pytest.mark.parametrize("error", [SafetensorError("No space left"), OSError(28, "No space left")])
def test_a_full_disk_leaves_the_checkpoint_that_was_there(
    tmp_path: Path, monkeypatch: Patch, error: Exception
) -> None:
    def full(tensors: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half of it")
        raise error

    path = tmp_path / "last.safetensors"
    save_checkpoint(path, *make(), POSITION)
    before = path.read_bytes()
    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(UserError, match=r"cannot write .*last\.safetensors: No space left"):
        save_checkpoint(path, *make(seed=5), Position())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert load_checkpoint(path, *make(seed=6)) == POSITION


@pytest.mark.parametrize("device", ["cuda:1", "cuda:0", "mps"])
def test_the_random_state_is_that_of_the_device_of_the_model(
    monkeypatch: Patch, device: str
) -> None:
    place, found = torch.device(device), {}
    for kind in (torch.cuda, torch.mps):
        monkeypatch.setattr(kind, "get_rng_state", lambda which="mps": f"of {which}")
        monkeypatch.setattr(
            kind, "set_rng_state", lambda state, which="mps": found.update({str(which): state})
        )
    assert checkpoint.random_state(place)[place.type] == f"of {device}"
    checkpoint._set_device_random_state(place, "another")
    assert found == {device: "another"}
    assert checkpoint.random_state(torch.device("cpu")).keys() == {"cpu"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_run_on_a_cuda_device_comes_back_bit_for_bit(tmp_path: Path) -> None:
    def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to("cuda")
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)

    inputs = torch.ones(64, 4, device="cuda")
    path = tmp_path / "last.safetensors"
    model, optimizer = made(0)
    step(model, optimizer, inputs)
    save_checkpoint(path, model, optimizer, POSITION)
    step(model, optimizer, inputs)
    other, other_optimizer = made(9)
    load_checkpoint(path, other, other_optimizer)
    step(other, other_optimizer, inputs)
    assert_equal(state_of(other, other_optimizer), state_of(model, optimizer))


def test_what_so_many_processes_cannot_go_on_from_is_known_before(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    model, optimizer = make()
    step(model, optimizer)
    states = [checkpoint.random_state(torch.device("cpu")) for _ in range(2)]
    save_checkpoint(path, model, optimizer, POSITION, random_states=states)
    check_checkpoint(path, 2)
    with pytest.raises(UserError, match="is of a run of 2 processes, not of 1"):
        check_checkpoint(path)
    rewrite(path, {"random.cpu.1": torch.zeros(3, dtype=torch.uint8)})
    with pytest.raises(UserError, match="is damaged"):
        check_checkpoint(path, 2)
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be read"):
        check_checkpoint(path, 2)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
def test_a_checkpoint_that_was_loaded_is_let_go(tmp_path: Path) -> None:
    """Windows replaces no file that is open."""
    path = tmp_path / "last.safetensors"
    model, optimizer = make()
    step(model, optimizer)
    save_checkpoint(path, model, optimizer, POSITION)
    other, other_optimizer = make(1)
    load_checkpoint(path, other, other_optimizer)
    assert str(path) not in Path("/proc/self/maps").read_text()
