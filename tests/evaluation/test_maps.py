"""Attention maps: measures with worked figures, targets against a fine raster, from end to end."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from captioner.caption.caption import Caption
from captioner.data.example import Example, ImageId
from captioner.data.instances import Box, Grounding, Target
from captioner.errors import UserError
from captioner.evaluation import maps
from captioner.vision.preprocessing import Preprocessing

MAP = np.array([[0.1, 0.2, 0.0, 0.0], [0.3, 0.4, 0.0, 0.0]])  # two rows, four columns
HALVES = np.array([[0.5, 0.5, 0, 0], [0, 0, 0, 0]])


def one_hot(place: int, weight: float = 1.0) -> np.ndarray:
    weights = np.full((2, 4), (1 - weight) / 7)
    weights.flat[place] = weight
    return weights


def test_mass_inside_and_pointing() -> None:
    coverage = np.array([[0.5, 0, 1, 1], [0, 0.25, 1, 1]])
    both = maps.mass_inside(np.stack([7 * MAP, HALVES]), coverage)
    assert both == pytest.approx([0.5 * 0.1 + 0.25 * 0.4, 0.25])
    target = np.array([[False, True, True, False], [False, True, False, False]])
    assert maps.pointing(np.stack([MAP, HALVES]), target).tolist() == [1.0, 0.5]
    assert maps.pointing(MAP, ~target) == 0.0
    nearly = np.float32(1 / 8) * np.array([[1, 1 + 1e-7, 1, 1], [1, 1, 1, 1 - 1e-7]])
    assert maps.pointing(nearly, target) == pytest.approx(3 / 8)  # rounding decides nothing


def test_the_centre_prior_is_a_gaussian_over_the_cells() -> None:
    prior = maps.centre_prior(14, 10)
    # By very many points of a Gaussian in each cell.
    points = (np.arange(1400) + 0.5) / 1400 - 0.5
    bell = np.exp(-0.5 * (points / maps.CENTRE_PRIOR_WIDTH) ** 2)
    down, across = bell.reshape(14, 100).sum(1), bell.reshape(10, 140).sum(1)
    expected = np.outer(down / down.sum(), across / across.sum())
    np.testing.assert_allclose(prior, expected, rtol=1e-4)


def test_entropy_and_divergence() -> None:
    several = np.stack([one_hot(3), np.full((2, 4), 0.125), HALVES, 5 * HALVES])
    assert maps.entropy(several) == pytest.approx([0, math.log(8), math.log(2), math.log(2)])
    found = maps.divergences(np.stack([one_hot(0), one_hot(1), HALVES]))
    half = -0.75 * math.log2(0.75) - 0.25 * math.log2(0.25) - 0.5  # H(3/4, 1/4) - (0 + 1) / 2
    assert found == pytest.approx([1, half, half])
    assert maps.divergences(np.stack([HALVES, HALVES])) == pytest.approx([0], abs=1e-12)


def test_the_spread_of_several_captions() -> None:
    moving = np.stack([one_hot(0), one_hot(1), one_hot(1)])  # 1, 1 and 0 bits
    found = maps.map_spread([moving, HALVES[None], np.empty((0, 2, 4))])
    expected = {"words": 4, "entropy": math.log(2) / 4, "effective_places": (3 + 2) / 4}
    expected |= {"places": 8, "captions": 1, "divergence": 2 / 3, "moving": True}
    assert found == pytest.approx(expected)
    alone = maps.map_spread([HALVES[None]])
    assert alone["divergence"] is alone["moving"] is None
    assert "divergence" not in maps.spread_table(alone)
    still = maps.map_spread([np.stack([HALVES, HALVES])])
    assert still["moving"] is False
    assert "WARNING: the maps hardly move" in maps.spread_table(still)


# Targets on the cells of a map


def test_centres_of_cells() -> None:
    size = (40, 20)
    for box, row in (((4, 4, 16, 6), [True, True, False, False]), ((6, 6, 14, 9), [False] * 4)):
        cells = maps.target_cells(Target(size, (box,)), size, (0.0, 0.0, 40.0, 20.0), (2, 4))
        assert cells is not None
        assert cells.centres.tolist() == [row, [False] * 4]


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
    found, expected = maps.target_cells(target, *where), raster(target, *where)
    if found is None:
        assert expected.max() < 0.02
    else:
        np.testing.assert_allclose(found.coverage, expected, atol=0.06)
        assert found.coverage.mean() == pytest.approx(expected.mean(), abs=0.01)


# Captions, with maps of two rows and four columns over a photo in which a cell is a pixel

WORDS = ("a", "red", "dog", "by", "water")
SIZE, REGION = (4, 2), (0.0, 0.0, 4.0, 2.0)


def pixel(*places: int) -> Target:
    corners = [(float(place % 4), float(place // 4)) for place in places]
    return Target(SIZE, tuple((x, y, x + 1, y + 1) for x, y in corners))


TARGETS = [None, pixel(1, 2), pixel(1, 2), None, pixel(7)]
MAPS = np.stack([one_hot(0), one_hot(1, 0.8), one_hot(2, 0.7), one_hot(6), one_hot(7, 0.9)])


def test_a_caption_worked_by_hand() -> None:
    found = maps.word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    assert [(word.position, word.word) for word in found] == list(enumerate(WORDS))
    assert [word.target for word in found] == ["none", "inside", "inside", "none", "inside"]
    red, dog, water = (word for word in found if word.target == "inside")
    assert red.mass == pytest.approx(0.8 + 0.2 / 7)
    assert red.share == red.pointing_uniform == pytest.approx(2 / 8)
    assert red.pointing == 1
    # The four middle cells of two rows and four columns hold the centre prior's maximum.
    assert red.pointing_centre_prior == pytest.approx(2 / 4)
    assert water.mass == pytest.approx(0.9)
    assert water.pointing_centre_prior == 0
    assert dog.mass == pytest.approx(0.7 + 0.3 / 7)


def test_means_over_words() -> None:
    words = maps.word_maps("x.jpg", WORDS, MAPS, TARGETS, SIZE, REGION)
    words += maps.word_maps("y.jpg", ["dog"], MAPS[:1], [pixel(0)], SIZE, REGION)
    found = maps.grounded_maps(words, not_annotated=1200)
    assert (found["words"], found["photos"], found["outside"]) == (4, 2, 0)
    assert found["not_annotated"] == 1200
    expected = [0.8 + 0.2 / 7, 0.7 + 0.3 / 7, 0.9, 1.0]
    assert found["mass_inside"]["attention"] == pytest.approx(np.mean(expected))
    assert found["mass_inside"]["uniform"] == pytest.approx(np.mean([2 / 8, 2 / 8, 1 / 8, 1 / 8]))
    without = maps.word_maps("x", WORDS, MAPS, None, SIZE, REGION)
    assert without[0].entropy == 0 < without[1].entropy
    assert set(maps.grounded_maps(without)["mass_inside"].values()) == {None}
    assert maps.word_maps("x", [], np.empty((0, 2, 4)), [], SIZE, REGION) == []


# Captions whose maps are known

PLACES = (5, 0, 10, 15, 3)
"""Where each word looks, of 4x4 places."""

PHOTO = Image.new("RGB", (80, 80))
X = Example("x", PHOTO, (" ".join(WORDS),))


@pytest.fixture
def captioner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says `WORDS` of every photo."""
    looked = np.eye(16)[list(PLACES)].reshape(5, 4, 4)

    def captions(model: Any, examples: Any) -> Iterator[tuple[Example, Caption]]:
        for example in examples:
            region = model.preprocessing.region(*example.source.size)
            yield example, Caption(X.captions[0], WORDS, -1.0, (-0.2,) * 5, looked, region=region)

    monkeypatch.setattr(maps, "caption_examples", captions)
    return SimpleNamespace(preprocessing=Preprocessing(size=64, resize="squash"))


def place_box(place: int) -> tuple[float, float, float, float]:
    """The box of one of 4x4 places of a photo of 80x80."""
    row, column = divmod(place, 4)
    return (20.0 * column, 20.0 * row, 20.0 * column + 20, 20.0 * row + 20)


def each_its_place(image_id: ImageId, words: Any) -> list[Target | None]:
    """The target of each word is the place at which it looks."""
    return [Target((80, 80), (place_box(place),)) for place in PLACES]


OF_X = Grounding("the boxes of x", {"x"}, each_its_place)


def test_scores_are_those_of_the_words_own_maps(captioner: Any) -> None:
    scores = maps.score_maps(captioner, [X], grounding=OF_X)
    assert [(word.word, word.mass) for word in scores.words] == [(word, 1.0) for word in WORDS]
    found = scores.grounded
    assert (found["words"], found["pointing_game"]["attention"]) == (5, 1.0)
    assert found["mass_inside"]["uniform"] == pytest.approx(1 / 16)
    assert scores.spread["divergence"] == pytest.approx(1.0)
    assert json.loads(json.dumps(scores.to_dict()))["grounded"] == found
    table = scores.table()
    assert table.startswith("photos  1\nwords   5\nentropy ")
    assert "mass inside          attention 1.0000, uniform 0.0625, centre " in table
    row = scores.rows()[1]
    assert [row[name] for name in ("image", "word", "mass")] == ["x", "red", 1.0]


def test_a_photo_is_measured_as_it_is_seen(captioner: Any) -> None:
    """Boxes are in pixels of the photo, and the model sees a crop of it."""
    captioner.preprocessing = Preprocessing(size=64, resize="crop", resize_shorter=64)
    wide = Image.new("RGB", (160, 80))

    def shifted(image_id: ImageId, words: Any) -> list[Target | None]:
        boxes = [place_box(place) for place in PLACES]
        moved = [(left + 40, top, right + 40, bottom) for left, top, right, bottom in boxes]
        # Drawn on a copy of half the size; and one beside what is seen.
        halves = [(a / 2, b / 2, c / 2, d / 2) for a, b, c, d in moved]
        return [Target((80, 40), (box,)) for box in [*halves[:4], (0.0, 0.0, 20.0, 40.0)]]

    grounding = Grounding("the boxes of x", {"x"}, shifted)
    found = maps.score_maps(captioner, [Example("x", wide)], grounding=grounding).grounded
    assert (found["words"], found["outside"]) == (4, 1)
    assert found["mass_inside"]["attention"] == pytest.approx(1.0)


def test_photos_that_are_not_annotated_are_refused_or_counted(captioner: Any) -> None:
    other = Example("y", Path("absent.png"))
    sentence = "^not one of 1 photos is annotated in the boxes of x$"
    with pytest.raises(UserError, match=sentence):  # And no photo was opened for it.
        maps.score_maps(captioner, [other], grounding=OF_X)
    found = maps.score_maps(captioner, [X, Example("y", PHOTO)], grounding=OF_X).grounded
    assert found["not_annotated"] == 1
