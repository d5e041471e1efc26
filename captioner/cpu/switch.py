"""The switch of the code written for CPUs."""

from __future__ import annotations

import os

import torch

SWITCH = "CAPTIONER_CPU_CODE"
"""Environment variable: `0` runs plain torch code everywhere."""


def enabled(device: torch.device) -> bool:
    """Whether to run the code of this room for tensors on this device.

    True on a CPU, unless the environment variable `SWITCH` is `0`; it is read at every call. On
    other devices the room's code launches more kernels than plain torch code, which costs more
    there (not measured).
    """
    return device.type == "cpu" and os.environ.get(SWITCH) != "0"
