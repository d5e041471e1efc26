"""Checkpoints: tensors in one safetensors file, with the run's position as JSON in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.files import atomic_path
from captioner.weight_files import fill

FORMAT = "captioner checkpoint 1"


@dataclass
class Position:
    """The progress of a run.

    epoch: epochs done. step_in_epoch: steps done in the current epoch. step: steps done in all.
    scores: validation scores so far. totals: sums of the reports of the current epoch.
    scaling: of float16's gradients; see `Stepper`.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    scores: list[float] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)
    scaling: dict[str, float] = field(default_factory=dict)


RandomState = dict[str, Tensor]
"""States of random generators, by kind of device."""


def random_state(device: torch.device) -> RandomState:
    """The states of this process's generators: the CPU's and its device's."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Position,
    average: Mapping[str, Tensor] | None = None,
    random_states: Sequence[RandomState] | None = None,
) -> None:
    """Write a checkpoint atomically: weights, optimiser state, random states and position.

    average: averaged weights by name, if any. random_states: those of all processes, by rank;
    default: this process's.
    Raises `UserError` when the file cannot be written (a full disk, say); the previous checkpoint
    stays whole.
    """
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{index}.{name}"] = value
    tensors |= {f"average.{name}": tensor for name, tensor in (average or {}).items()}
    if random_states is None:
        random_states = [random_state(parameters[0].device)]
    for rank, states in enumerate(random_states):
        tensors |= {_random_name(kind, rank): state for kind, state in states.items()}
    header = {"format": FORMAT, "position": json.dumps(vars(position))}
    if len(random_states) > 1:
        header["processes"] = str(len(random_states))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=header)
        except SafetensorError as error:
            raise UserError(f"cannot write {path}: {error}") from None


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Mapping[str, Tensor] | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Position:
    """Load a checkpoint into a model and its optimiser, and set the random state.

    average: averaged weights by name, to fill. rank, world_size: this process and their number.
    Raises `UserError` when the file is damaged, belongs to another model, or to a run of another
    number of processes, which would draw other random numbers.
    """
    position, tensors = _read(path, world_size)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    device = parameters[0].device
    torch.set_rng_state(tensors[_random_name("cpu", rank)])
    if (state_of_device := tensors.get(_random_name(device.type, rank))) is not None:
        _set_device_random_state(device, state_of_device)
    other_model = f"checkpoint {path} belongs to another model"
    fill(model, tensors, other_model, "model.")
    fill(average or {}, tensors, other_model, "average.")
    for index, parameter in enumerate(parameters):
        prefix = f"optimizer.{index}."
        state: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if not name.startswith(prefix):
                continue
            if tensor.dim() == 0:  # The number of steps.
                # A copy: Windows cannot replace a file that is open.
                value = tensor.to(parameter.device, copy=True)
            elif tensor.shape == parameter.shape:
                # Fused Adam needs the memory format of the parameter.
                value = torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)
            else:
                raise UserError(f"{other_model}: state {name!r}")
            state[name.removeprefix(prefix)] = value
        if state:
            optimizer.state[parameter] = state
    return position


def check_checkpoint(path: Path, world_size: int = 1) -> None:
    """Raise `UserError` for a checkpoint that is damaged or of another number of processes.

    Only `load_checkpoint` knows whether it belongs to the model.
    """
    _read(path, world_size)


def _read(path: Path, world_size: int) -> tuple[Position, dict[str, Tensor]]:
    """The position of a run, and its tensors, which are mapped from the file."""
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            names = file.keys()
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise UserError(f"checkpoint {path} cannot be read ({error})") from None
    if header.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of a training run")
    made_by = header.get("processes", "1")
    if made_by != str(world_size):
        raise UserError(
            f"checkpoint {path} is of a run of {made_by} processes, not of {world_size}: resume it "
            f"with {made_by}, or start another run from its model (start_from)"
        )
    try:
        for rank in range(world_size):
            torch.Generator().set_state(tensors[_random_name("cpu", rank)].clone())
        return Position(**json.loads(header["position"])), tensors
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise UserError(
            f"checkpoint {path} is damaged: it lacks the position or random state of the run"
        ) from None


def _random_name(kind: str, rank: int) -> str:
    return f"random.{kind}" if rank == 0 else f"random.{kind}.{rank}"


def _set_device_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
