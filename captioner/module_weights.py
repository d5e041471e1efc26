"""Weights of torch modules: written, read, checked and filled in."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from captioner.errors import UserError
from captioner.memory_limits import check_memory
from captioner.weight_files import (
    DIGEST,
    stored_tensors,
    tensors_digest,
    weights_header,
    write_weights,
)

Module = TypeVar("Module", bound=nn.Module)


def named_tensors(modules: Mapping[str, nn.Module], dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors of modules by part, named `part.name`, on the CPU; floats become `dtype`."""
    tensors = nn.ModuleDict(modules).state_dict()
    for name, tensor in tensors.items():
        stored = tensor.to(dtype) if tensor.is_floating_point() else tensor
        tensors[name] = stored.detach().cpu().contiguous()
    return tensors


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors atomically, with their digest."""
    write_weights(path, tensors, {DIGEST: tensors_digest(tensors)})


def load_weights(module: nn.Module, path: Path, digest: str | None = None) -> None:
    """`fill` a module on the device `meta` from a file.

    digest: of the tensors; by default the file's own.
    """
    check_memory(_size(module), f"the model in {path.parent}")
    fill(module, read_tensors(path, digest), path)


def make_trainable(make: Callable[[], Module], what: str) -> Module:
    """Make a module, if memory holds its weights, gradients and Adam's two means."""
    with torch.device("meta"):
        size = 4 * _size(make())
    check_memory(size, f"training {what}")
    return make()


def empty_embedding(words: int, size: int) -> nn.Embedding:
    """An uninitialised embedding (V, E): drawing on `meta` imports torch's compiler."""
    weights = torch.empty(words, size)
    return nn.Embedding.from_pretrained(weights, freeze=False)  # type: ignore[no-untyped-call, no-any-return]


def _size(module: nn.Module) -> int:
    """Bytes in float32."""
    return 4 * sum(parameter.numel() for parameter in module.parameters())


def read_tensors(path: Path, digest: str | None = None) -> dict[str, Tensor]:
    """Read all tensors; refuses those of another digest and, without one, NaN and infinity.

    digest: by default the file's own.
    """
    written, _ = weights_header(path)
    digest = digest or written
    tensors: dict[str, Tensor] = stored_tensors(path, "pt")
    if not digest:
        for name, tensor in tensors.items():
            if not tensor.sum(dtype=torch.float64).isfinite():  # Faster than `isfinite` of all.
                raise UserError(f"model weights {path}: tensor {name!r} holds NaN or infinity")
    elif digest != tensors_digest(tensors):
        problem = "are damaged (their digest is another); copy the model again"
        raise UserError(f"model weights {path} {problem}")
    return tensors


def fill(
    module: nn.Module | Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    source: str | Path,
    prefix: str = "",
) -> None:
    """Fill a module, or tensors by name, in place from those behind `prefix`.

    Values take the type and memory format of the module. A module on the device `meta` is moved to
    the CPU, in float32 also if torch's default type is another. source: of the tensors; begins the
    message about the first one that does not fit, and then nothing is filled.
    """
    expected = module.state_dict() if isinstance(module, nn.Module) else module
    stored = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    for name in sorted(expected.keys() | stored.keys()):
        wanted, tensor, problem = expected.get(name), stored.get(name), ""
        if tensor is None:
            problem = "is missing"
        elif wanted is None:
            problem = "does not belong to this model"
        elif tensor.shape != wanted.shape:
            problem = f"is {tuple(tensor.shape)}, not {tuple(wanted.shape)}"
        elif tensor.is_floating_point() != wanted.is_floating_point():
            problem = f"is of type {tensor.dtype}, not {wanted.dtype}"
        if problem:
            raise UserError(f"{source}: tensor {prefix + name!r} {problem}")
    if isinstance(module, nn.Module) and any(tensor.is_meta for tensor in expected.values()):
        on_cpu = {name: _like(tensor, stored[name]) for name, tensor in expected.items()}
        module.load_state_dict(on_cpu, assign=True)
        return
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(stored[name])


def _like(meta: Tensor, tensor: Tensor) -> Tensor:
    """A tensor, floats in float32, with the strides of a `meta` tensor; itself if it is so."""
    dtype = torch.float32 if meta.is_floating_point() else meta.dtype
    if tensor.dtype == dtype and tensor.stride() == meta.stride():
        return tensor
    # `empty_like` of a meta tensor imports sympy, which takes half a second.
    return torch.empty_strided(meta.shape, meta.stride(), dtype=dtype).copy_(tensor)
