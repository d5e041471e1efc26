"""Types of arrays, and torch's types where torch may be missing."""

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]
"""NumPy's; docstrings give shapes and, where it matters, types."""

Values = Any
"""An array of NumPy, or a tensor of torch: what computes decides."""

Device: TypeAlias = "torch.device | None"
Generator: TypeAlias = "torch.Generator | None"
"""Torch's; None where it does not compute, or where nothing is sampled."""
