"""Masks of the positions that each query may attend to."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(length: int, device: torch.device | str = "cpu") -> Tensor:
    """Make the triangle (T, T), boolean: query t attends to the positions up to and with t.

    Vaswani et al. 2017, section 3.2.3: "prevent leftward information flow in the decoder".
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # (T, T)


def window_mask(centres: Tensor, length: int, half_width: int) -> Tensor:
    """Centres (B, Q) -> (B, Q, L), boolean: the positions in [centre - D, centre + D].

    Positions count from 0; centres may be fractions. half_width: D of Luong et al. 2015,
    section 3.2.
    """
    positions = torch.arange(length, device=centres.device)  # (L)
    return (positions - centres.unsqueeze(-1)).abs() <= half_width  # (B, Q, L)
