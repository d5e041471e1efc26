"""Masks that say what a query may see of positions, beside what of them is padding."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """The triangle (T, T), boolean: query t may see the positions up to t, itself among them.

    Vaswani et al. 2017, section 3.2.3: "prevent leftward information flow in the decoder".
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # (T, T)


def window_mask(centres: Tensor, length: int, half_width: int) -> Tensor:
    """Centres (B, Q) -> (B, Q, L), boolean: the positions in [centre - D, centre + D].

    Positions are counted from 0; centres need not be whole numbers. half_width: D of Luong et al.
    2015, section 3.2.
    """
    positions = torch.arange(length, device=centres.device)  # (L)
    return (positions - centres.unsqueeze(-1)).abs() <= half_width  # (B, Q, L)
