"""Everything a run needs to go on, in one file: tensors, with the rest as JSON in its header."""

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
    """Where a run is.

    epoch: passes done. step_in_epoch: steps done in the pass under way. step: steps done in all.
    scores: validation scores so far. totals: sums of what is reported once an epoch.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    scores: list[float] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)


RandomState = dict[str, Tensor]
"""Where dropout draws from, by the kind of device."""


def random_state(device: torch.device) -> RandomState:
    """The state of this process's generators: the CPU's, and that of its device."""
    states = {"cpu": torch.get_rng_state()}
    own = _device_random_state(device)
    return states if own is None else {**states, device.type: own}


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Position,
    average: Mapping[str, Tensor] | None = None,
    random_states: Sequence[RandomState] | None = None,
) -> None:
    """Write a checkpoint atomically: weights, optimiser state, random states and position.

    average: averaged weights by name, where there are such. random_states: of all processes of the
    run, in the order of their ranks; that of this one by default.
    Raises `UserError` when the file cannot be written (a full disk, say); the checkpoint that was
    there before is then still whole.
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
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(ready, temporary, metadata=header)
        except SafetensorError as error:
            raise UserError(f"cannot write {path}: {error}") from None


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Mapping[str, Tensor] | None = None,
    rank: int = 0,
    processes: int = 1,
) -> Position:
    """Put a checkpoint into a model and its optimiser, set the random state, give the position.

    average: averaged weights by name, which are filled. rank, processes: which of how many
    processes of the run this one is.
    Raises `UserError` when the file is damaged, belongs to another model, or is of a run of more or
    fewer processes, which would draw other numbers.
    """
    position, tensors = _read(path, processes)
    try:
        torch.set_rng_state(tensors[_random_name("cpu", rank)])
    except (KeyError, TypeError, RuntimeError):
        raise _damaged(path) from None
    other_model = f"checkpoint {path} belongs to another model"
    fill(model, tensors, other_model, "model.")
    fill(average or {}, tensors, other_model, "average.")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(parameters):
        prefix = f"optimizer.{index}."
        state: dict[str, Any] = {}
        for name, tensor in tensors.items():
            if not name.startswith(prefix):
                continue
            if tensor.dim() == 0:  # How many steps were made.
                # A copy: the file would stay open, and on Windows could not be replaced.
                own_form = tensor.to(parameter.device, copy=True)
            elif tensor.shape == parameter.shape:
                # In the parameter's own order in memory, which Adam's fused form goes by.
                own_form = torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)
            else:
                raise UserError(f"{other_model}: state {name!r}")
            state[name.removeprefix(prefix)] = own_form
        if state:
            optimizer.state[parameter] = state
    device = parameters[0].device
    if (own := _random_name(device.type, rank)) in tensors:
        try:
            _set_device_random_state(device, tensors[own])
        except (TypeError, RuntimeError):
            raise UserError(f"checkpoint {path} is damaged: its random state is not one") from None
    return position


def check_checkpoint(path: Path, processes: int = 1) -> None:
    """Raise `UserError` for a checkpoint that so many processes could not go on from.

    That is a damaged one, or one of more or fewer processes; whether it is of the same model is
    known only to `load_checkpoint`.
    """
    _, tensors = _read(path, processes)
    for rank in range(processes):
        try:
            torch.Generator().set_state(tensors[_random_name("cpu", rank)].clone())
        except (KeyError, TypeError, RuntimeError):
            raise _damaged(path) from None


def _read(path: Path, processes: int) -> tuple[Position, dict[str, Tensor]]:
    """Where a run of so many processes is, and its tensors, which lie in the file."""
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
    if made_by != str(processes):
        raise UserError(
            f"checkpoint {path} is of a run of {made_by} processes, not of {processes}: resume it "
            "with as many, or begin another run from its weights (start_from)"
        )
    try:
        return Position(**json.loads(header["position"])), tensors
    except (KeyError, TypeError, ValueError):
        raise _damaged(path) from None


def _damaged(path: Path) -> UserError:
    return UserError(f"checkpoint {path} is damaged: it does not say where the run is")


def _random_name(kind: str, rank: int) -> str:
    return f"random.{kind}" if rank == 0 else f"random.{kind}.{rank}"


def _device_random_state(device: torch.device) -> Tensor | None:
    """Where dropout draws from on this accelerator; None on the CPU, whose state is always kept."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    if device.type == "mps":
        return torch.mps.get_rng_state()
    return None


def _set_device_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
