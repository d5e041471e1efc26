"""Selecting parts of a state: of K hypotheses for each of B sources."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from captioner.attention import Memory


def select_rows(tensor: Tensor, rows: Tensor) -> Tensor:
    """Select rows (B, K'), indices into each source's K, of (B, K, ...): (B, K', ...)."""
    batch_size, count = tensor.shape[:2]
    first = torch.arange(0, batch_size * count, count, device=rows.device).unsqueeze(1)  # (B, 1)
    selected = tensor.flatten(end_dim=1).index_select(0, (first + rows).flatten())
    return selected.view(*rows.shape, *tensor.shape[2:])  # (B, K', ...)


def select_sources(state: Any, sources: Tensor) -> Any:
    """Select sources (B',), indices into B, of a tensor (B, ...), a memory or a tuple of these."""
    if isinstance(state, Tensor):
        return state.index_select(0, sources)
    if isinstance(state, Memory):
        return state.select(sources)
    selected = [select_sources(each, sources) for each in state]
    return type(state)(*selected) if hasattr(state, "_fields") else tuple(selected)
