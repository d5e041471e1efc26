"""Chooses the device, and the precision on it."""

import os
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.memory_limits import allowed_cores

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def choose_device(chosen: torch.device | str = "auto") -> torch.device:
    """The device `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best available."""
    name, mps = str(chosen), int(torch.backends.mps.is_available())
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if mps else "cpu")
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": mps}
    try:
        device = torch.device(name)
        count = counts[device.type]
    except (RuntimeError, KeyError):
        raise UserError(f"device {name!r} is not one of auto, cpu, cuda, cuda:N, mps") from None
    if (device.index or 0) >= count:
        raise UserError(f"device {name!r} is not on this machine")
    return device


def fast_device(chosen: torch.device | str) -> torch.device:
    """The device of a program, which may change torch's settings for the whole process.

    On CUDA: TF32 in products, cuDNN's fastest convolutions. On a CPU no more threads than
    `allowed_cores`: torch knows no quota of a container.
    """
    device = choose_device(chosen)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), allowed_cores()))
    return device


def choose_precision(name: str) -> torch.dtype:
    """The type of matrix products, `float32` or `bfloat16`."""
    if name not in _PRECISIONS:
        raise UserError(f"precision {name!r} is not one of {', '.join(_PRECISIONS)}")
    return _PRECISIONS[name]


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is of that type."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def autocast(device: torch.device, precision: torch.dtype) -> AbstractContextManager[object]:
    """A region whose matrix products are in bfloat16 or float16; other types change nothing."""
    if precision in (torch.bfloat16, torch.float16):
        return torch.autocast(device.type, precision)
    return nullcontext()
