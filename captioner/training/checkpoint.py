"""Checkpoints: tensors in a safetensors file, the run's position in its header."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from captioner.errors import UserError, refuse_errors
from captioner.memory_limits import check_memory
from captioner.module_weights import fill
from captioner.training.config import TrainingConfig
from captioner.weight_files import write_weights

CHECKPOINT = "last.safetensors"
FORMAT = "captioner checkpoint 2"


@dataclass
class Position:
    """The progress of a run."""

    epoch: int = 0  # Epochs done.
    step_in_epoch: int = 0  # Steps done in the current epoch.
    step: int = 0  # Steps done in all.
    scores: list[list[float]] = field(default_factory=list)  # `deciding_scores` of validations.
    totals: dict[str, float] = field(default_factory=dict)  # Sums of the epoch's reports.
    scaling: dict[str, float] = field(default_factory=dict)  # The state of float16's scaler.

    def is_finished(self, config: TrainingConfig) -> bool:
        """Whether the run went through its epochs, or stopped early."""
        scores, patience = self.scores, config.patience
        waited = len(scores) - 1 - scores.index(max(scores)) if scores else 0
        return 0 < patience <= waited or self.epoch >= config.epochs


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of this process's generators: the CPU's, and its GPU's."""
    gpu = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **gpu}


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Position,
    average: Mapping[str, Tensor],
    random_states: Sequence[dict[str, Tensor]],
) -> None:
    """Write a run's state; atomically. random_states: those of all processes, by rank."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.items()}
    for rank, states in enumerate(random_states):
        tensors |= {_random_name(kind, rank): state for kind, state in states.items()}
    processes = str(len(random_states))
    header = {"format": FORMAT, "position": json.dumps(vars(position)), "processes": processes}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_weights(path, tensors, header)


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Mapping[str, Tensor],
    rank: int = 0,
    world_size: int = 1,
) -> Position:
    """Load a checkpoint into a model, its optimiser and `average`, and set the random state."""
    position, tensors = read_checkpoint(path, world_size)
    other_model = f"checkpoint {path} belongs to another model"
    fill(model, tensors, other_model, "model.")
    fill(average, tensors, other_model, "average.")
    device = next(model.parameters()).device
    groups = (group["params"] for group in optimizer.param_groups)
    parameters = dict(enumerate(chain.from_iterable(groups)))
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, kind = name.split(".")
            parameter = parameters.get(int(index))
            is_scalar = value.dim() == 0  # The number of steps.
            if parameter is None or not (is_scalar or value.shape == parameter.shape):
                raise UserError(f"{other_model}: state {name!r}")
            # Fused Adam needs the memory format of the parameter. A copy: Windows cannot replace a
            # file that is open.
            like = value if is_scalar else parameter
            copied = torch.empty_like(like, dtype=value.dtype, device=device).copy_(value)
            optimizer.state[parameter][kind] = copied
    torch.set_rng_state(tensors[_random_name("cpu", rank)])
    name = _random_name("cuda", rank)
    if device.type == "cuda" and name in tensors:  # None of a run that began on a CPU.
        torch.cuda.set_rng_state(tensors[name], device)
    return position


def read_checkpoint(path: Path, world_size: int = 1) -> tuple[Position, dict[str, Tensor]]:
    """The position of a run, and its tensors, which are mapped from the file."""
    with refuse_errors(f"checkpoint {path} cannot be read"):
        check_memory(os.path.getsize(path), f"checkpoint {path}")
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.get("format") != FORMAT:
        fault = f"{path} is not a checkpoint of a training run by this version"
        raise UserError(f"{fault}: start another run with --start-from FOLDER")
    if (made_by := header.get("processes", "1")) != str(world_size):
        fault = f"checkpoint {path} is of a run of {made_by} processes, not of {world_size}"
        raise UserError(f"{fault}: resume it with {made_by}, or start another run from its model")
    return Position(**json.loads(header["position"])), tensors


def _random_name(kind: str, rank: int) -> str:
    return f"random.{kind}" if rank == 0 else f"random.{kind}.{rank}"
