from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from render_samples import Floats, OneHot

from captioner.render.overlay import place


def upsample(weights: npt.ArrayLike, width: int, height: int) -> Floats:
    """A map over a whole photo."""
    return place(weights, (width, height), (0, 0, width, height))


def test_centre_of_mass_of_an_inner_cell_is_its_centre(one_hot: OneHot) -> None:
    drawn = upsample(one_hot(7, 5, 3, 2), 85, 91)
    across = (drawn.sum(axis=0) * (np.arange(85) + 0.5)).sum() / drawn.sum()
    down = (drawn.sum(axis=1) * (np.arange(91) + 0.5)).sum() / drawn.sum()
    assert (across, down) == pytest.approx((2.5 / 5 * 85, 3.5 / 7 * 91))


def test_values_of_the_spline_by_hand(one_hot: OneHot) -> None:
    # One pixel a cell: each pixel is a cell's centre, where a cubic B-spline is 2/3, beside it 1/6.
    drawn = upsample(one_hot(5, 5, 2, 2), 5, 5)
    line = np.array([0, 1 / 6, 2 / 3, 1 / 6, 0])
    np.testing.assert_allclose(drawn, np.outer(line, line), atol=1e-12)
    # In a corner the outermost cell also stands for the one beyond it: 2/3 + 1/6.
    corner = upsample(one_hot(5, 5, 0, 4), 5, 5)
    down, across = np.array([5 / 6, 1 / 6, 0, 0, 0]), np.array([0, 0, 0, 1 / 6, 5 / 6])
    np.testing.assert_allclose(corner, np.outer(down, across), atol=1e-12)


@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_stays_between_the_lowest_and_highest_weight(
    rows: int, columns: int, width: int, height: int, seed: int
) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.full(rows * columns, 0.3))
    drawn = upsample(weights.reshape(rows, columns), width, height)
    assert drawn.shape == (height, width)
    assert drawn.min() >= weights.min() - 1e-12
    assert drawn.max() <= weights.max() + 1e-12


def test_even_map_stays_even_up_to_the_edge() -> None:
    np.testing.assert_allclose(upsample(np.full((14, 14), 1 / 196), 301, 77), 1 / 196, rtol=1e-12)


def test_place_lays_the_map_over_the_region_alone() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(196)).reshape(14, 14)
    placed = place(weights, (320, 200), (60, 0, 260, 200))
    assert placed.shape == (200, 320)
    np.testing.assert_allclose(placed[:, 60:260], upsample(weights, 200, 200))
    assert not placed[:, :60].any()
    assert not placed[:, 260:].any()


def test_place_takes_a_region_between_pixels(one_hot: OneHot) -> None:
    placed = place(one_hot(2, 2, 1, 0), (10, 10), (2.6, 0.4, 7.4, 9.6))
    seen = np.zeros((10, 10), dtype=bool)
    seen[0:10, 3:7] = True  # the columns with centres 3.5 to 6.5; all rows, centres 0.5 to 9.5
    assert ((placed > 0) == seen).all()
    assert placed[8, 3] == placed.max()


def test_place_takes_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(upsample(torch.full((2, 2), 0.25), 4, 4), 0.25)
