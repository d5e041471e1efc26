"""Weights of a model in a safetensors file: nothing pickled, and every tensor accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.files import atomic_path


def write_weights(path: Path, modules: Mapping[str, nn.Module], dtype: torch.dtype) -> None:
    """Write the weights of modules, each by the name of its part, atomically.

    dtype: what floating-point weights are stored as. Raises `UserError` when it cannot be written.
    """
    write_tensors(path, stored(modules, dtype))


def read_weights(path: Path, modules: Mapping[str, nn.Module]) -> None:
    """Put the weights that `write_weights` wrote into modules, in the types these have.

    Raises `UserError` as `read_tensors` and `fill` do.
    """
    fill(modules, read_tensors(path), path)


def stored(modules: Mapping[str, nn.Module], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The tensors of modules by part and name, as they are written.

    dtype: of floating-point tensors; None leaves each its own.
    """
    return {
        f"{part}.{name}": (tensor.to(dtype) if tensor.is_floating_point() else tensor)
        .detach()
        .cpu()
        .contiguous()
        for part, module in modules.items()
        for name, tensor in module.state_dict().items()
    }


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors, atomically. Raises `UserError` when the file cannot be written."""
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            raise UserError(f"cannot write {path}: {error}") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file. Raises `UserError` for one that is missing or damaged."""
    if not path.is_file():
        raise UserError(f"model weights {path} do not exist")
    try:
        found: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"model weights {path} cannot be read ({error})") from None
    return found


def fill(modules: Mapping[str, nn.Module], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Put tensors, named as `stored` names them, into modules, in the types and the memory format
    that these have.

    path: of the file they come from, for messages. Modules may have been made on the device `meta`,
        without memory.
    Raises `UserError` naming the file, and the tensor that is missing or does not fit.
    """
    expected = {f"{part}.{n}": t for part, m in modules.items() for n, t in m.state_dict().items()}
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise UserError(f"{path}: tensor {name!r} is missing")
        if name not in expected:
            raise UserError(f"{path}: tensor {name!r} does not belong to this model")
        if tensors[name].shape != expected[name].shape:
            raise UserError(
                f"{path}: tensor {name!r} is {tuple(tensors[name].shape)}, "
                f"not {tuple(expected[name].shape)}"
            )
        if tensors[name].is_floating_point() != expected[name].is_floating_point():
            raise UserError(
                f"{path}: tensor {name!r} is of type {tensors[name].dtype}, "
                f"not {expected[name].dtype}"
            )
    for part, module in modules.items():
        own = {
            name: _in_format_of(tensor, tensors[f"{part}.{name}"])
            for name, tensor in module.state_dict().items()
        }
        module.load_state_dict(own, assign=True)


def _in_format_of(wanted: Tensor, given: Tensor) -> Tensor:
    """A tensor on the CPU in the type and with the strides of another one of its shape.

    The same tensor, where it is so already.
    """
    if given.dtype == wanted.dtype and given.stride() == wanted.stride():
        return given
    # Not by `empty_like`, which imports sympy for tensors without memory: half a second.
    return torch.empty_strided(wanted.shape, wanted.stride(), dtype=wanted.dtype).copy_(given)
