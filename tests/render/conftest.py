from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from render_samples import Attention, Floats, OneHot


@pytest.fixture
def photo() -> Image.Image:
    """A photo of 90x60 pixels with both bright and dark places."""
    values = np.random.default_rng(5).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((90, 60), Image.Resampling.BICUBIC)


@pytest.fixture
def one_hot() -> OneHot:
    """Gives a map (rows, columns) with all its weight in one cell."""

    def build(rows: int, columns: int, row: int, column: int) -> Floats:
        weights = np.zeros((rows, columns))
        weights[row, column] = 1
        return weights

    return build


@pytest.fixture
def attention() -> Attention:
    """Gives the maps (T, 14, 14) of T words."""

    def build(words: int) -> Floats:
        drawn = np.random.default_rng(words).dirichlet(np.full(196, 0.5), size=words)
        return drawn.reshape(words, 14, 14)

    return build
