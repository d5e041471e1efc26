"""Measures how a word's probability falls as attended places of the photo are blurred.

Petsiuk, Das and Saenko 2018, *RISE: Randomized Input Sampling for Explanation of Black-box
Models*, section 4: deletion and insertion. Removes places of the map instead of
pixels, and blurs them instead of painting them grey, which would add edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

Probability = Callable[[NDArray[np.bool_]], Floats]
"""Places to blur (N, L), True for those -> the probability (N, W) of each of W words, given the
words before it."""


class Curves(NamedTuple):
    """The probability of W words of one photo along S + 1 shares of its places.

    shares: (S + 1,), from 0 to 1.
    deletion: (W, S + 1), with that share of the places blurred, the most attended first.
    insertion: (W, S + 1), with that share shown and the rest blurred.
    random_deletion, random_insertion: (W, S + 1), the same in random order, the mean of R orders.
    """

    shares: Floats
    deletion: Floats
    insertion: Floats
    random_deletion: Floats
    random_insertion: Floats


def attended_order(attention: ArrayLike, generator: np.random.Generator) -> Places:
    """The places of each map (W, rows, columns), the most attended first: (W, L).

    Ties are broken at random, so an even map gives a random order.
    """
    maps = np.asarray(attention, dtype=np.float64)
    flat = maps.reshape(len(maps), -1)  # (W, L)
    return np.asarray(np.lexsort((generator.random(flat.shape), -flat), axis=-1))


def random_orders(attention: ArrayLike, count: int, generator: np.random.Generator) -> Places:
    """`count` orders (R, L) of places that do not depend on the photo.

    Each is the order of one of the maps (W, rows, columns), drawn at random and shifted cyclically
    by a random distance, so that random patches are as large as attended ones. Single random
    places would leave a chequered photo that still shows everything.
    """
    maps = np.asarray(attention, dtype=np.float64)
    words, rows, columns = maps.shape
    moved = [
        np.roll(maps[word], (down, across), axis=(0, 1))
        for word, down, across in generator.integers((words, rows, columns), size=(count, 3))
    ]
    return attended_order(np.stack(moved), generator)


def curves(
    attention: ArrayLike,
    probability: Probability,
    orders: Places,
    generator: np.random.Generator,
    steps: int = 10,
) -> Curves:
    """Deletion and insertion curves of W words, from one call of `probability`.

    attention: (W, rows, columns), the maps of the words of `probability`.
    orders: (R, L), the random orders, shared by all words. generator: see `attended_order`.
    steps: S; the shares are 0, 1/S, ..., 1, to the nearest whole number of places.
    """
    own = attended_order(attention, generator)  # (W, L)
    words, places = own.shape
    counts = np.rint(np.arange(steps + 1) / steps * places).astype(np.int64)  # (S + 1,)
    inner = counts[1:-1, None]  # (S - 1, 1)
    ranks = np.argsort(np.concatenate([own, orders]), axis=-1)[:, None]  # (W + R, 1, L)
    without = ranks < inner  # (W + R, S - 1, L), the first places
    ends = np.stack([np.zeros(places, dtype=bool), np.ones(places, dtype=bool)])  # (2, L)
    asked = np.concatenate([ends, *without, *~without])
    told = np.asarray(probability(asked), dtype=np.float64)  # (N, W)
    whole, nothing = told[0], told[1]  # (W,) each
    deleted, inserted = told[2:].reshape(2, words + len(orders), max(steps - 1, 0), words)
    # Each word takes its own order's answers; all words share the random ones.
    each = np.arange(words)

    def joined(start: Floats, middle: Floats, end: Floats) -> Floats:
        return np.concatenate([start[:, None], middle, end[:, None]], axis=1)  # (W, S + 1)

    return Curves(
        counts / places,
        joined(whole, deleted[each, :, each], nothing),
        joined(nothing, inserted[each, :, each], whole),
        joined(whole, deleted[words:].mean(axis=0).T, nothing),
        joined(nothing, inserted[words:].mean(axis=0).T, whole),
    )
