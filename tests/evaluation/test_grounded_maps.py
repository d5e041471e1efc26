from __future__ import annotations

import json

import numpy as np
import pytest

from captioner.data.instances import Target
from captioner.evaluation.grounded_maps import grounded_maps, word_maps

SIZE = (4, 2)
REGION = (0.0, 0.0, 4.0, 2.0)  # of maps of two rows and four columns: a cell is a pixel
WORDS = ["a", "red", "dog", "by", "water"]


def peak(place: int, weight: float = 1.0) -> np.ndarray:
    weights = np.full((2, 4), (1 - weight) / 7)
    weights.flat[place] = weight
    return weights


def pixel(*places: int) -> Target:
    boxes = [(x, y, x + 1, y + 1) for y, x in (divmod(place, 4) for place in places)]
    return Target(SIZE, tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in boxes))


TARGETS = [None, pixel(1, 2), pixel(1, 2), None, pixel(7)]
MAPS = np.stack([peak(0), peak(1, 0.8), peak(2, 0.7), peak(6), peak(7, 0.9)])


def test_a_caption_worked_by_hand() -> None:
    found = word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    assert [word.word for word in found] == WORDS
    assert [word.position for word in found] == [0, 1, 2, 3, 4]
    assert [word.target for word in found] == ["none", "inside", "inside", "none", "inside"]
    red, dog, water = (word for word in found if word.target == "inside")
    assert red.mass == pytest.approx(0.8 + 0.2 / 7)
    assert red.share == pytest.approx(2 / 8)
    assert red.pointing == 1
    assert red.pointing_uniform == pytest.approx(2 / 8)
    # The four middle cells of two rows and four columns hold the centre prior's maximum.
    assert red.pointing_centre_prior == pytest.approx(2 / 4)
    assert water.mass == pytest.approx(0.9)
    assert water.pointing_centre_prior == 0
    # "red" and "dog" are about the same place, so between them no shift shows.
    shifted = [(word.mass_one_word_early, word.mass_one_word_late) for word in (red, dog, water)]
    assert shifted == [(0.0, None), (None, 0.0), (0.0, None)]


def test_means_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner.evaluation.grounded_maps.WORDS_SHOWN", 2)
    words = word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    words += word_maps("y.jpg", ["dog"], MAPS[:1], [pixel(0)], SIZE, REGION)
    found = grounded_maps(words)
    assert (found.words, found.photos, found.outside) == (4, 2, 0)
    expected = [0.8 + 0.2 / 7, 0.7 + 0.3 / 7, 0.9, 1.0]
    assert found.mass.attention == pytest.approx(np.mean(expected))
    assert found.mass.uniform == pytest.approx(np.mean([2 / 8, 2 / 8, 1 / 8, 1 / 8]))
    assert list(found.by_word) == ["dog", "red"]
    count, mass, _ = found.by_word["dog"]
    assert count == 2
    assert mass.attention == pytest.approx((expected[1] + 1) / 2)
    assert found.early.words == 2
    assert found.early.own == pytest.approx((expected[0] + expected[2]) / 2)
    assert found.early.shifted == 0
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["mass_inside"]["uniform"] == pytest.approx(0.1875)
    assert plain["by_word"]["dog"]["count"] == 2
    table = [line.split() for line in found.table().splitlines()]
    assert ["attention", f"{found.mass.attention:.4f}", "1.0000"] in table
    assert ["one", "word", "late"] in [line[:3] for line in table]


def test_a_target_outside_is_reported_and_not_counted() -> None:
    targets = [pixel(0), pixel(3), None]
    words = word_maps(0, ["dog", "cat", "a"], MAPS[:3], targets, SIZE, (2.0, 0.0, 4.0, 2.0))
    assert [word.target for word in words] == ["outside", "inside", "none"]
    assert words[0].mass is None
    found = grounded_maps(words)
    assert (found.words, found.outside) == (1, 1)
    assert "1            that lie outside what the model saw" in found.table()


def test_photos_that_are_not_annotated_are_told() -> None:
    words = word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    found = grounded_maps(words, not_annotated=1200)
    assert found.as_dict()["not_annotated"] == 1200
    for table in (found.table(), grounded_maps([], not_annotated=1200).table()):
        told = table.splitlines()[1].split()
        assert told == ["not", "annotated", "1,200", "photos,", "which", "do", "not", "count"]
    assert "not annotated" not in grounded_maps(words).table()


def test_without_targets_there_is_the_spread_only() -> None:
    words = word_maps("x", WORDS, MAPS, None, SIZE, REGION)
    assert words[0].entropy == 0
    assert words[1].entropy > 0
    found = grounded_maps(words)
    assert found.mass is None
    assert found.table() == "words with a target  0  in 0 photos"
    assert json.loads(json.dumps(found.as_dict()))["pointing_game"] is None
    assert word_maps("x", [], np.empty((0, 2, 4)), [], SIZE, REGION) == []
