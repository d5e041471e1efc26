"""A photo, the part of it that maps cover, and maps."""

import numpy as np
import numpy.typing as npt
from PIL import Image

Floats = npt.NDArray[np.float64]

_VALUES = np.random.default_rng(5).integers(0, 256, (6, 9, 3), dtype=np.uint8)
PHOTO = Image.fromarray(_VALUES).resize((90, 60), Image.Resampling.BICUBIC)
"""With both bright and dark places."""

REGION = (15.0, 0.0, 75.0, 60.0)


def attention(words: int) -> Floats:
    """Maps (T, 14, 14) of T words."""
    drawn = np.random.default_rng(words).dirichlet(np.full(196, 0.5), size=words)
    return drawn.reshape(words, 14, 14)


def one_hot(rows: int, columns: int, row: int, column: int) -> Floats:
    """A map (rows, columns) with all its weight in one cell."""
    weights = np.zeros((rows, columns))
    weights[row, column] = 1
    return weights
