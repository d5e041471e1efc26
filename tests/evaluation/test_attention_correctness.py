from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.map_measures import (
    CENTRE_PRIOR_WIDTH,
    centre_prior,
    mass_inside,
    pointing,
)

MAP = np.array([[0.1, 0.2, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]])  # two rows, four columns


def test_mass_worked_by_hand() -> None:
    coverage = np.array([[0.5, 0, 1, 1], [0, 0.25, 1, 1]])
    assert mass_inside(MAP, coverage) == pytest.approx(0.5 * 0.1 + 0.25 * 0.4)
    assert mass_inside(7 * MAP, coverage) == pytest.approx(0.15)
    assert mass_inside(MAP, MAP == 0) == 0


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6))
def test_even_attention_scores_the_baselines_exactly(seed: int, rows: int, columns: int) -> None:
    random = np.random.default_rng(seed)
    coverage, centres = random.random((rows, columns)), random.random((rows, columns)) < 0.4
    even = np.full((rows, columns), 1 / (rows * columns))
    assert even.sum() == pytest.approx(1)
    assert mass_inside(even, coverage) == pytest.approx(coverage.mean(), abs=1e-12)
    assert pointing(even, centres) == pytest.approx(centres.mean(), abs=1e-12)


def test_several_maps_at_once_are_each_alone() -> None:
    random = np.random.default_rng(3)
    maps, coverage = random.random((5, 3, 4)), random.random((5, 3, 4))
    centres = coverage > 0.5
    assert mass_inside(maps, coverage) == pytest.approx(
        [float(mass_inside(*pair)) for pair in zip(maps, coverage, strict=True)]
    )
    assert pointing(maps, centres).tolist() == [
        float(pointing(*pair)) for pair in zip(maps, centres, strict=True)
    ]


def test_pointing_worked_by_hand() -> None:
    target = np.array([[False, True, True, False], [False, True, False, False]])
    assert pointing(MAP, target) == 1.0  # 0.4 is in it
    assert pointing(MAP, ~target) == 0.0
    assert pointing([[3.0, 1.0, 1.0, 0.0], [0.0, 3.0, 0.0, 3.0]], target) == pytest.approx(1 / 3)
    nearly = np.float32(1 / 8) * np.array([[1, 1 + 1e-7, 1, 1], [1, 1, 1, 1 - 1e-7]])
    assert pointing(nearly, target) == pytest.approx(3 / 8)  # rounding decides nothing


def test_the_centre_prior_is_a_gaussian_over_the_cells() -> None:
    prior = centre_prior(14, 10)
    assert prior.sum() == pytest.approx(1)
    np.testing.assert_allclose(prior, prior[::-1, ::-1], rtol=1e-9)
    # By very many points of a Gaussian in each cell.
    points = (np.arange(1400) + 0.5) / 1400 - 0.5
    bell = np.exp(-0.5 * (points / CENTRE_PRIOR_WIDTH) ** 2)
    down, across = bell.reshape(14, 100).sum(1), bell.reshape(10, 140).sum(1)
    expected = np.outer(down / down.sum(), across / across.sum())
    np.testing.assert_allclose(prior, expected, rtol=1e-4)
    middle = np.zeros((14, 10), dtype=bool)
    middle[6:8, 4:6] = True
    assert pointing(prior, middle) == 1.0
    middle[7, 5] = False
    assert pointing(prior, middle) == pytest.approx(3 / 4)
