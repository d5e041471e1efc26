"""Types of the fixtures, and the part of `photo` that maps cover."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Attention = Callable[[int], Floats]
OneHot = Callable[[int, int, int, int], Floats]

REGION = (15.0, 0.0, 75.0, 60.0)
