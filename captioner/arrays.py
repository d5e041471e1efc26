"""Types of arrays."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
"""NumPy's; docstrings give shapes and, where it matters, types."""

Values = Any
"""An array of NumPy, or a tensor of torch: what computes decides."""
