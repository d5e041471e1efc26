"""Sinusoidal position encodings. Vaswani et al. 2017, section 3.5."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoidal_positions(first: int | Tensor, count: int, like: Tensor) -> Tensor:
    """Return the encodings (count, H) of positions `first`, `first` + 1, ..., counted from 0.

    PE(p, 2i) = sin(p / 10000^(2i / H)), PE(p, 2i + 1) = cos(p / 10000^(2i / H)).
    like: (..., H) with H even; gives size, type and device. first: a tensor () need not be read,
        which would wait for a GPU. Computed in float32 on every call, so that there is no maximum
        position.
    """
    size = like.shape[-1]
    positions = torch.arange(count, device=like.device).float() + first  # (count)
    even = torch.arange(0, size, 2, device=like.device).float()  # (H / 2)
    angles = positions.unsqueeze(-1) * torch.exp(
        even * (-math.log(10000.0) / size)
    )  # (count, H / 2)
    codes = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (count, H / 2, 2)
    return codes.flatten(start_dim=1).to(like.dtype)  # (count, H)
