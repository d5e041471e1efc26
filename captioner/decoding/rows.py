"""Selecting rows of a state: K hypotheses for each of B sources."""

from __future__ import annotations

from torch import Tensor


def select_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Select rows (B, K'), indices into each source's K, of (B, K, ...): (B, K', ...)."""
    index = rows.view(*rows.shape, *(1,) * (tensor.dim() - 2))  # (B, K', 1, ...)
    return tensor.gather(1, index.expand(*rows.shape, *tensor.shape[2:]))  # (B, K', ...)
