"""Reliability and areas under ROC curves, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.errors import UserError
from captioner.evaluation.calibration import ReliabilityBin, auroc, reliability


def test_bins_by_hand() -> None:
    found = reliability([0.1, 0.2, 0.6, 1.0], [0.0, 0.5, 1.0, 1.0], bins=2)
    low, high = found.bins
    assert low == ReliabilityBin(0.0, 0.5, pytest.approx(0.15), pytest.approx(0.25), 2)
    assert high == ReliabilityBin(0.5, 1.0, pytest.approx(0.8), pytest.approx(1.0), 2)
    assert found.error == pytest.approx((0.1 + 0.2) / 2)
    assert found.squared_error == pytest.approx((0.01 + 0.09 + 0.16) / 4)


def test_a_bin_without_items_is_left_out_and_the_edge_belongs_to_the_upper_bin() -> None:
    found = reliability([0.5, 0.0], [1.0, 0.0], bins=4)
    assert [(each.low, each.count) for each in found.bins] == [(0.0, 1), (0.5, 1)]


def test_scores_that_are_the_truth_have_a_small_error() -> None:
    random = np.random.default_rng(0)
    truth = random.uniform(0, 1, 20_000)
    seen = (random.uniform(0, 1, 20_000) < truth).astype(float)
    assert reliability(truth.tolist(), seen.tolist()).error < 0.015
    assert reliability((truth / 2).tolist(), seen.tolist()).error > 0.2


@pytest.mark.parametrize(
    ("higher", "lower", "area"),
    [
        ([2.0, 3.0], [0.0, 1.0], 1.0),
        ([0.0, 1.0], [2.0, 3.0], 0.0),
        ([1.0, 1.0], [1.0], 0.5),
        ([1.0, 3.0], [2.0, 2.0, 0.0], 2 / 3),
    ],
)
def test_areas_by_hand(higher: list[float], lower: list[float], area: float) -> None:
    assert auroc(higher, lower) == pytest.approx(area)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to measure"):
        reliability([], [])
    with pytest.raises(UserError, match="number of bins, 0"):
        reliability([0.5], [1.0], bins=0)
    with pytest.raises(ValueError, match="1 scores but 2"):
        reliability([0.5], [1.0, 0.0])
    with pytest.raises(UserError, match="one of the two groups is empty"):
        auroc([], [1.0])
