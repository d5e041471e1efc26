"""Measures of attention maps with worked figures, and targets against a fine raster."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.instances import Box, Target
from captioner.evaluation.map_measures import (
    CENTRE_PRIOR_WIDTH,
    TargetCells,
    centre_prior,
    divergences,
    entropy,
    mass_inside,
    pointing,
    target_cells,
)
from captioner.evaluation.map_scores import map_spread, spread_table

MAP = np.array([[0.1, 0.2, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]])  # two rows, four columns
HALVES = np.array([[0.5, 0.5, 0, 0], [0, 0, 0, 0]])


def one_hot(place: int) -> np.ndarray:
    return np.eye(8)[place].reshape(2, 4)


def test_mass_inside() -> None:
    coverage = np.array([[0.5, 0, 1, 1], [0, 0.25, 1, 1]])
    assert mass_inside(MAP, coverage) == pytest.approx(0.5 * 0.1 + 0.25 * 0.4)
    assert mass_inside(7 * MAP, coverage) == pytest.approx(0.15)
    both = mass_inside(np.stack([MAP, HALVES]), coverage)
    assert both == pytest.approx([0.15, 0.25])


def test_pointing() -> None:
    target = np.array([[False, True, True, False], [False, True, False, False]])
    assert pointing(np.stack([MAP, HALVES]), target).tolist() == [1.0, 0.5]
    assert pointing(MAP, ~target) == 0.0
    assert pointing([[3.0, 1.0, 1.0, 0.0], [0.0, 3.0, 0.0, 3.0]], target) == pytest.approx(1 / 3)
    nearly = np.float32(1 / 8) * np.array([[1, 1 + 1e-7, 1, 1], [1, 1, 1, 1 - 1e-7]])
    assert pointing(nearly, target) == pytest.approx(3 / 8)  # rounding decides nothing


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6))
def test_even_attention_scores_the_baselines_exactly(seed: int, rows: int, columns: int) -> None:
    random = np.random.default_rng(seed)
    coverage, centres = random.random((rows, columns)), random.random((rows, columns)) < 0.4
    even = np.full((rows, columns), 1 / (rows * columns))
    assert mass_inside(even, coverage) == pytest.approx(coverage.mean(), abs=1e-12)
    assert pointing(even, centres) == pytest.approx(centres.mean(), abs=1e-12)


def test_the_centre_prior_is_a_gaussian_over_the_cells() -> None:
    prior = centre_prior(14, 10)
    assert prior.sum() == pytest.approx(1)
    # By very many points of a Gaussian in each cell.
    points = (np.arange(1400) + 0.5) / 1400 - 0.5
    bell = np.exp(-0.5 * (points / CENTRE_PRIOR_WIDTH) ** 2)
    down, across = bell.reshape(14, 100).sum(1), bell.reshape(10, 140).sum(1)
    expected = np.outer(down / down.sum(), across / across.sum())
    np.testing.assert_allclose(prior, expected, rtol=1e-4)
    middle = np.zeros((14, 10), dtype=bool)
    middle[6:8, 4:6] = True
    middle[7, 5] = False
    assert pointing(prior, middle) == pytest.approx(3 / 4)


def test_entropy() -> None:
    maps = np.stack([one_hot(3), np.full((2, 4), 0.125), HALVES, 5 * HALVES])
    assert entropy(maps) == pytest.approx([0, math.log(8), math.log(2), math.log(2)])


def test_divergence() -> None:
    assert divergences(np.stack([one_hot(0), one_hot(1)])) == pytest.approx([1])
    assert divergences(np.stack([HALVES, HALVES])) == pytest.approx([0], abs=1e-12)
    # H(3/4, 1/4) - (0 + 1) / 2 in bits.
    expected = -0.75 * math.log2(0.75) - 0.25 * math.log2(0.25) - 0.5
    assert divergences(np.stack([one_hot(0), HALVES])) == pytest.approx([expected])
    assert divergences(HALVES[None]).shape == (0,)


def test_the_spread_of_several_captions() -> None:
    moving = np.stack([one_hot(0), one_hot(1), one_hot(1)])  # 1, 1 and 0 bits
    spread = map_spread([moving, HALVES[None], np.empty((0, 2, 4))])
    assert spread == {
        "words": 4,
        "entropy": pytest.approx(math.log(2) / 4),
        "effective_places": pytest.approx((3 + 2) / 4),
        "places": 8,
        "captions": 1,
        "divergence": pytest.approx(2 / 3),
        "moving": True,
    }
    alone = map_spread([HALVES[None]])
    assert alone["divergence"] is alone["moving"] is None
    assert "divergence" not in spread_table(alone)


def test_maps_that_do_not_move_are_warned_of() -> None:
    random = np.random.default_rng(0)
    static = random.dirichlet(np.full(196, 0.5), size=(20, 1)).reshape(20, 1, 14, 14)
    moved = random.dirichlet(np.full(196, 0.5), size=(20, 6)).reshape(20, 6, 14, 14)
    for share, moving in ((0.0, False), (0.05, False), (1.0, True)):
        spread = map_spread(list((1 - share) * static + share * moved))
        assert spread["moving"] is moving
        assert ("WARNING: the maps hardly move" in spread_table(spread)) is not moving


# Targets on the cells of a map

SIZE = (40, 20)
REGION = (0.0, 0.0, 40.0, 20.0)  # of a map of two rows and four columns, whose cells are 10x10


def cells(*boxes: Box) -> TargetCells:
    found = target_cells(Target(SIZE, boxes), SIZE, REGION, (2, 4))
    assert found is not None
    return found


def test_centres() -> None:
    assert cells((4, 4, 16, 6)).centres.tolist() == [[True, True, False, False], [False] * 4]
    assert not cells((6, 6, 14, 9)).centres.any()


@pytest.mark.parametrize("box", [(0, 0, 10, 20), (-9, -9, -1, -1), (20, 3, 20, 9), (30, 9, 25, 12)])
def test_what_is_not_in_the_map_is_not_counted(box: Box) -> None:
    assert target_cells(Target(SIZE, (box,)), SIZE, (20.0, 0.0, 40.0, 20.0), (2, 4)) is None


def raster(
    target: Target, photo: tuple[int, int], region: Box, shape: tuple[int, int]
) -> np.ndarray:
    """Coverage by asking very many points of the map whether they lie in the target."""
    fine = 60
    rows, columns = shape
    y = (np.arange(rows * fine) + 0.5) / (rows * fine) * (region[3] - region[1]) + region[1]
    x = (np.arange(columns * fine) + 0.5) / (columns * fine) * (region[2] - region[0]) + region[0]
    y, x = y * target.size[1] / photo[1], x * target.size[0] / photo[0]
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for left, top, right, bottom in target.boxes:
        inside |= ((top <= y) & (y < bottom))[:, None] & ((left <= x) & (x < right))
    if target.mask is not None:
        inside |= target.mask[np.ix_(np.floor(y).astype(int), np.floor(x).astype(int))]
    return inside.reshape(rows, fine, columns, fine).mean(axis=(1, 3))


@given(st.integers(0, 2**31), st.booleans())
def test_coverage_is_that_of_a_fine_raster(seed: int, masked: bool) -> None:
    random = np.random.default_rng(seed)
    size = (int(random.integers(3, 12)), int(random.integers(3, 12)))
    boxes = []
    for _ in range(int(random.integers(0 if masked else 1, 4))):
        x, y = np.sort(random.uniform(-2, 14, 2)), np.sort(random.uniform(-2, 14, 2))
        boxes.append((x[0], y[0], x[1], y[1]))
    mask = random.random((size[1], size[0])) < 0.3 if masked else None
    target = Target(size, tuple(boxes), mask)
    where = (37, 23), (3.3, 1.1, 29.7, 22.0), (3, 4)
    found, expected = target_cells(target, *where), raster(target, *where)
    if found is None:
        assert expected.max() < 0.02
    else:
        np.testing.assert_allclose(found.coverage, expected, atol=0.06)
        assert found.coverage.mean() == pytest.approx(expected.mean(), abs=0.01)
