"""Positions as sines and cosines. Vaswani et al. 2017, section 3.5."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sinusoidal_positions(first: int, count: int, like: Tensor) -> Tensor:
    """The codes (count, H) of the positions from `first` on, counted from 0.

    PE(p, 2i) = sin(p / 10000^(2i / H)) and PE(p, 2i + 1) = cos of the same.
    like: (..., H), whose size, which is even, type and device they have. They are computed in
    float32, as they are needed: there is no longest one.
    """
    size = like.shape[-1]
    positions = torch.arange(first, first + count, device=like.device).float()  # (count)
    halves = torch.arange(0, size, 2, device=like.device).float()  # (H / 2)
    angles = positions.unsqueeze(-1) * torch.exp(
        halves * (-math.log(10000.0) / size)
    )  # (count, H / 2)
    codes = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (count, H / 2, 2)
    return codes.flatten(start_dim=1).to(like.dtype)  # (count, H)
