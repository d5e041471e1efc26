from __future__ import annotations

import math

import numpy as np
import pytest

from captioner.errors import UserError
from captioner.evaluation.map_measures import divergences, entropy
from captioner.evaluation.map_scores import LEAST_DIVERGENCE, map_spread


def one_hot(place: int) -> np.ndarray:
    weights = np.zeros((2, 4))
    weights.flat[place] = 1
    return weights


HALVES = np.array([[0.5, 0.5, 0, 0], [0, 0, 0, 0]])


def test_entropy_worked_by_hand() -> None:
    maps = np.stack([one_hot(3), np.full((2, 4), 0.125), HALVES, 5 * HALVES])
    assert entropy(maps) == pytest.approx([0, math.log(8), math.log(2), math.log(2)])
    assert entropy(np.array([[0.75, 0.25]])) == pytest.approx(
        -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    )


def test_divergence_worked_by_hand() -> None:
    assert divergences(np.stack([one_hot(0), one_hot(1)])) == pytest.approx([1])
    assert divergences(np.stack([HALVES, HALVES])) == pytest.approx([0], abs=1e-12)
    # H(3/4, 1/4) - (0 + 1) / 2 in bits.
    expected = -0.75 * math.log2(0.75) - 0.25 * math.log2(0.25) - 0.5
    assert divergences(np.stack([one_hot(0), HALVES])) == pytest.approx([expected])
    assert divergences(HALVES[None]).shape == (0,)


def test_the_spread_of_several_captions() -> None:
    moving = np.stack([one_hot(0), one_hot(1), one_hot(1)])  # 1, 1 and 0 bits
    spread = map_spread([moving, HALVES[None], np.empty((0, 2, 4))])
    assert (spread.words, spread.captions, spread.places) == (4, 1, 8)
    assert spread.divergence == pytest.approx(2 / 3)
    assert spread.entropy == pytest.approx(math.log(2) / 4)
    assert spread.effective_places == pytest.approx((3 + 2) / 4)
    assert spread.moving is True
    assert "WARNING" not in spread.table()
    assert spread.as_dict()["moving"] is True


def test_maps_that_do_not_move_are_warned_of() -> None:
    random = np.random.default_rng(0)
    static = random.dirichlet(np.full(196, 0.5), size=(20, 1)).reshape(20, 1, 14, 14)
    moved = random.dirichlet(np.full(196, 0.5), size=(20, 6)).reshape(20, 6, 14, 14)
    for share, warned in ((0.0, True), (0.05, True), (1.0, False)):
        spread = map_spread(list((1 - share) * static + share * moved))
        assert spread.moving is not warned
        assert ("WARNING: the maps hardly move" in spread.table()) is warned
    assert 0 < LEAST_DIVERGENCE < 1


def test_captions_of_one_word_tell_of_no_movement() -> None:
    spread = map_spread([HALVES[None]])
    assert spread.divergence is None
    assert spread.moving is None
    assert "divergence" not in spread.table()


def test_no_words_have_no_maps() -> None:
    with pytest.raises(UserError, match="not one caption has a word"):
        map_spread([np.empty((0, 2, 4))])
