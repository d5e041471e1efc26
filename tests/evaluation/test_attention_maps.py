from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.evaluation.attention_maps import box_share, mass_inside

MAP = np.array([[0.1, 0.2, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]])  # two rows, four columns
REGION = (0.0, 0.0, 40.0, 20.0)  # so that a cell is 10x10


@pytest.mark.parametrize(
    ("box", "inside"),
    [
        ((0, 0, 40, 20), 1.0),
        ((0, 0, 10, 10), 0.1),
        ((10, 0, 20, 20), 0.6),
        ((15, 0, 20, 20), 0.3),  # half of the second column
        ((15, 15, 20, 20), 0.1),  # a quarter of the cell of 0.4
        ((5, 5, 15, 15), 0.25),  # a quarter of each of the four
        ((20, 0, 40, 20), 0.0),
        ((-50, -50, 10, 500), 0.4),  # outside counts nothing
        ((12, 3, 12, 9), 0.0),  # no area
        ((100, 100, 120, 120), 0.0),
    ],
)
def test_mass_worked_by_hand(box, inside) -> None:
    assert mass_inside(MAP, box, REGION) == pytest.approx(inside, abs=1e-12)
    assert mass_inside(7 * MAP, box, REGION) == pytest.approx(inside, abs=1e-12)


def test_the_region_may_be_a_crop() -> None:
    # The same map over the part of a photo that begins at (100, 50).
    assert mass_inside(MAP, (110, 50, 120, 70), (100, 50, 140, 70)) == pytest.approx(0.6)
    assert box_share((110, 50, 120, 70), (100, 50, 140, 70)) == pytest.approx(0.25)
    assert box_share((90, 40, 110, 60), (100, 50, 140, 70)) == pytest.approx(100 / 800)


edge = st.floats(-20, 60, allow_nan=False)


@given(edge, edge, edge, edge, st.integers(1, 9), st.integers(1, 9))
def test_even_attention_has_the_share_of_the_box(left, top, right, bottom, rows, columns) -> None:
    box = (left, top, right, bottom)
    even = np.full((rows, columns), 0.01)
    expected = box_share(box, REGION)
    assert mass_inside(even, box, REGION) == pytest.approx(expected, abs=1e-9)
    assert 0.0 <= expected <= 1.0


@given(st.integers(0, 2**31), edge, edge)
def test_mass_is_that_of_a_map_drawn_pixel_by_pixel(seed, start, end) -> None:
    random = np.random.default_rng(seed)
    weights = random.random((2, 4))
    left, right = sorted((round(start), round(end)))
    drawn = np.repeat(np.repeat(weights, 10, axis=0), 10, axis=1)  # (20, 40) pixels
    cut = drawn[3:18, max(left, 0) : max(right, 0)].sum() / drawn.sum()
    assert mass_inside(weights, (left, 3, right, 18), REGION) == pytest.approx(cut, abs=1e-9)


@pytest.mark.parametrize(
    ("weights", "box", "region", "sentence"),
    [
        (np.ones(4), (0, 0, 1, 1), REGION, r"shape \(4,\)"),
        (np.ones((0, 4)), (0, 0, 1, 1), REGION, r"shape \(0, 4\)"),
        (np.zeros((2, 2)), (0, 0, 1, 1), REGION, "zero everywhere"),
        (np.array([[1.0, -1.0]]), (0, 0, 1, 1), REGION, "negative"),
        (np.array([[1.0, np.nan]]), (0, 0, 1, 1), REGION, "not a number"),
        (np.ones((2, 2)), (0, 0, np.inf, 1), REGION, "not a number"),
        (np.ones((2, 2)), (0, 0, 1, 1), (5, 5, 5, 9), "no area"),
    ],
)
def test_what_is_no_map_box_or_region_is_refused(weights, box, region, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        mass_inside(weights, box, region)
