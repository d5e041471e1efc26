from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from captioner.evaluation.curve_scores import curve_scores
from captioner.evaluation.deletion import Curves, attended_order, curves, random_orders

Told = NDArray[np.float64]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def one_place(taken: NDArray[np.bool_], places: tuple[int, ...]) -> Told:
    """Words each of which is certain when its one place is to be seen, and impossible when not."""
    return (~taken[:, list(places)]).astype(np.float64)


def test_every_picture_asked_for_is_the_one_meant() -> None:
    """The probability is a number that names the places left, so none can be mistaken."""
    attention = generator(1).dirichlet(np.ones(6), size=3).reshape(3, 2, 3)
    orders = random_orders(attention, 2, generator(2))
    worth = 2.0 ** np.arange(6)

    def probability(taken: NDArray[np.bool_]) -> Told:
        left = (~taken) @ worth  # (N,)
        return np.stack([left, 100 + left, 200 + left], axis=1)

    found = curves(attention, probability, orders, generator(), 3)
    assert found.shares.tolist() == [0, 2 / 6, 4 / 6, 1]
    for word, order in enumerate(np.argsort(-attention.reshape(3, -1), axis=-1)):
        for step, count in enumerate((0, 2, 4, 6)):
            assert found.deletion[word, step] == 100 * word + worth[order[count:]].sum()
            assert found.insertion[word, step] == 100 * word + worth[order[:count]].sum()
            assert found.random_deletion[word, step] == pytest.approx(
                100 * word + np.mean([worth[each[count:]].sum() for each in orders])
            )
            assert found.random_insertion[word, step] == pytest.approx(
                100 * word + np.mean([worth[each[:count]].sum() for each in orders])
            )


def test_one_step_asks_for_the_ends_only() -> None:
    asked = []

    def probability(taken: NDArray[np.bool_]) -> Told:
        asked.append(len(taken))
        return one_place(taken, (0,))

    found = curves(np.ones((1, 2, 2)), probability, np.array([[0, 1, 2, 3]]), generator(), 1)
    assert asked == [2]
    assert found.deletion.tolist() == found.random_deletion.tolist() == [[1, 0]]


def test_places_attended_alike_come_in_random_order() -> None:
    even = np.full((400, 2, 2), 0.25)
    first = attended_order(even, generator())[:, 0]
    assert np.bincount(first, minlength=4) == pytest.approx(100, abs=40)
    tied = np.array([[[0.4, 0.1], [0.4, 0.1]]])
    assert {tuple(attended_order(tied, generator(n))[0][:2]) for n in range(20)} == {(0, 2), (2, 0)}


def test_random_orders_are_maps_moved_elsewhere() -> None:
    spot = np.zeros((1, 5, 6))
    spot[0, 1:3, 2:4] = [[0.4, 0.3], [0.2, 0.1]]
    orders = random_orders(spot, 200, generator())
    assert orders.shape == (200, 30)
    assert (np.sort(orders, axis=1) == np.arange(30)).all()
    places = [divmod(int(order[0]), 6) for order in orders]
    assert len(set(places)) == 30  # it may come to lie anywhere
    for order, (row, column) in zip(orders, places, strict=True):
        beside = [row * 6 + (column + 1) % 6, (row + 1) % 5 * 6 + column]
        assert order[1:3].tolist() == beside  # and stays in one piece, round the edges
    again = random_orders(spot, 200, generator())
    assert (again == orders).all()


SHARES = np.array([0.0, 0.5, 1.0])


def photo(own: list[list[float]], other: list[list[float]]) -> Curves:
    attended, random = np.array(own), np.array(other)
    return Curves(SHARES, attended, attended[:, ::-1], random, random[:, ::-1])


def test_scores_worked_by_hand() -> None:
    photos = [
        photo([[0.8, 0.0, 0.0], [0.4, 0.4, 0.0]], [[0.8, 0.4, 0.0], [0.4, 0.2, 0.0]]),
        photo([[0.6, 0.6, 0.6]], [[0.6, 0.6, 0.6]]),
        Curves(SHARES, *[np.empty((0, 3))] * 4),
    ]
    scores = curve_scores(photos)
    assert (scores.words, scores.photos) == (3, 2)
    # Areas: 0.2, 0.3, 0.6 against 0.4, 0.2, 0.6.
    assert scores.deletion.attended == pytest.approx(1.1 / 3)
    assert scores.deletion.random == pytest.approx(1.2 / 3)
    assert scores.deletion.difference == pytest.approx(-0.1 / 3)
    assert scores.deletion.better == pytest.approx(0.5)  # one yes, one no, one draw
    assert scores.insertion.better == pytest.approx(0.5)
    assert scores.deletion.curve == pytest.approx([1.8 / 3, 1.0 / 3, 0.6 / 3])
    # Two photos drawn with replacement: the first alone has -0.05, the second alone 0.
    assert scores.deletion.low == pytest.approx(-0.05)
    assert scores.deletion.high == pytest.approx(0)
    assert "area under curve" in scores.table()
    assert len(json.loads(json.dumps(scores.as_dict()))["deletion"]["band"]) == 2


def test_the_interval_is_that_of_resampled_photos() -> None:
    random = np.random.default_rng(5)
    photos = [
        photo(random.random((n, 3)).tolist(), random.random((n, 3)).tolist())
        for n in random.integers(1, 5, size=12)
    ]
    score = curve_scores(photos).insertion
    differences = []
    for _ in range(4000):
        drawn = [photos[i] for i in random.integers(12, size=12)]
        areas = [np.trapezoid(p.insertion - p.random_insertion, SHARES) for p in drawn]
        differences.append(np.concatenate(areas).mean())
    low, high = np.quantile(differences, [0.025, 0.975])
    assert score.low == pytest.approx(low, abs=0.02)
    assert score.high == pytest.approx(high, abs=0.02)


def test_a_single_photo_has_no_interval() -> None:
    one = photo([[0.8, 0.0, 0.0], [0.4, 0.4, 0.0]], [[0.8, 0.4, 0.0], [0.4, 0.2, 0.0]])
    nothing = Curves(SHARES, *[np.empty((0, 3))] * 4)
    for photos in ([one], [nothing, one]):  # A photo without words is no second one.
        scores = curve_scores(photos)
        assert (scores.words, scores.photos) == (2, 1)
        assert scores.deletion.difference == pytest.approx(-0.05)
        plain = json.loads(json.dumps(scores.as_dict()))["deletion"]
        for name in ("low", "high", "band", "random_band"):
            assert plain[name] is None
        assert plain["curve"] == pytest.approx([0.6, 0.2, 0.0])
        lines = scores.table().splitlines()
        assert lines[1].split() == ["deletion", "0.2500", "0.3000", "-0.0500", "-", "50.0%"]
        assert lines[-1] == "a single photo says nothing about how far this holds for others"
    assert "single photo" not in curve_scores([one, one]).table()
