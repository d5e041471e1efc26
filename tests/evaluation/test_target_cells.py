from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.instances import Box, Target
from captioner.evaluation.map_measures import TargetCells, target_cells

SIZE = (40, 20)
REGION = (0.0, 0.0, 40.0, 20.0)  # of a map of two rows and four columns, whose cells are 10x10


def cells(*boxes: Box) -> TargetCells:
    return target_cells(Target(SIZE, boxes), SIZE, REGION, (2, 4))


@pytest.mark.parametrize(
    ("boxes", "coverage"),
    [
        ([(0, 0, 40, 20)], [[1, 1, 1, 1], [1, 1, 1, 1]]),
        ([(10, 0, 20, 20)], [[0, 1, 0, 0], [0, 1, 0, 0]]),
        ([(15, 15, 20, 20)], [[0, 0, 0, 0], [0, 0.25, 0, 0]]),
        ([(5, 5, 15, 15)], [[0.25, 0.25, 0, 0], [0.25, 0.25, 0, 0]]),
        ([(-50, -50, 10, 500)], [[1, 0, 0, 0], [1, 0, 0, 0]]),  # outside counts nothing
        ([(0, 0, 10, 5), (0, 0, 5, 10)], [[0.75, 0, 0, 0], [0, 0, 0, 0]]),  # a union, no sum
        ([(0, 0, 10, 10)] * 3, [[1, 0, 0, 0], [0, 0, 0, 0]]),
        ([(0, 0, 2, 10), (38, 10, 40, 20)], [[0.2, 0, 0, 0], [0, 0, 0, 0.2]]),
    ],
)
def test_coverage_worked_by_hand(boxes: list[Box], coverage: list[list[float]]) -> None:
    found = cells(*boxes)
    np.testing.assert_allclose(found.coverage, coverage, atol=1e-12)
    assert found.share == pytest.approx(np.mean(coverage))


def test_centres_worked_by_hand() -> None:
    assert cells((4, 4, 16, 6)).centres.tolist() == [[True, True, False, False], [False] * 4]
    assert not cells((6, 6, 14, 9)).centres.any()
    assert cells((6, 6, 14, 9)).share > 0


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
        for i, down in enumerate(np.floor(y).astype(int)):
            for j, along in enumerate(np.floor(x).astype(int)):
                if 0 <= down < target.size[1] and 0 <= along < target.size[0]:
                    inside[i, j] |= target.mask[down, along]
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
    photo = (37, 23)
    region = (3.3, 1.1, 29.7, 22.0)
    found = target_cells(target, photo, region, (3, 4))
    expected = raster(target, photo, region, (3, 4))
    if found is None:
        assert expected.max() < 0.02
    else:
        np.testing.assert_allclose(found.coverage, expected, atol=0.06)
        assert found.share == pytest.approx(expected.mean(), abs=0.01)
