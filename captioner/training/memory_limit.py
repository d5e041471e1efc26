"""Refuses a model that cannot be trained in the memory there is."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from captioner.errors import UserError

_BYTES = 16
"""Of a parameter in training: its value, its gradient and Adam's two moments, in float32."""


def check_memory(make: Callable[[], nn.Module], device: torch.device) -> None:
    """Raise `UserError` if training a model takes more memory than the device has.

    make: makes the model; it is made without memory here.
    """
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in make().parameters())
    needed, present = _BYTES * parameters, memory_of(device)
    if present is not None and needed > present:
        raise UserError(
            f"a model of these sizes has {parameters:,} parameters, whose training needs "
            f"{needed / 1e9:,.0f} GB of memory, and there are {present / 1e9:,.0f} GB; "
            "choose smaller sizes"
        )


def memory_of(device: torch.device) -> int | None:
    """Bytes of a device's memory; None if they are not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf.
        return None
