"""Entropy of attention maps, and divergence from word to word; needs no boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from captioner.errors import UserError
from captioner.evaluation.text_table import Row, text_table

LEAST_DIVERGENCE = 0.02
"""Below this mean divergence, in bits, a model's maps do not move.

Measured: untrained models have at most 0.001, trained ones 0.06 (after one or two epochs) to 0.34.
A model of 0.23 falls to 0.015 if three quarters of each map are replaced by the caption's mean map.
Two Gaussians with a standard deviation of three cells, one cell apart, have 0.017.
"""

Floats = NDArray[np.float64]


def entropy(attention: ArrayLike) -> Floats:
    """Entropy of each map (..., rows, columns), in nats: (...,).

    0 for attention to one place, log L for even attention to L places. Its exponential is the
    effective number of places.
    """
    return _entropy(_distributions(attention))


def divergences(attention: ArrayLike) -> Floats:
    """The divergence of the maps (T, rows, columns) of every two words: (T * (T - 1) / 2,).

    Jensen-Shannon, in bits: 0 for equal maps, 1 for maps without a common place.
    Lin 1991, *Divergence Measures Based on the Shannon Entropy*.
    """
    maps = _distributions(attention)  # (T, L)
    first, second = np.triu_indices(len(maps), k=1)
    own = _entropy(maps)  # (T,)
    middle = _entropy((maps[first] + maps[second]) / 2)
    nats = middle - (own[first] + own[second]) / 2
    return np.asarray(np.clip(nats / np.log(2), 0.0, 1.0))


@dataclass(frozen=True)
class MapSpread:
    """Mean entropy of a model's maps, and their divergence from word to word.

    words: the number of maps. entropy: their mean, in nats. effective_places: the mean of the
    exponentials of their entropies, from 1 to `places`, the number of places L of a map.
    captions: of two words or more. divergence: the mean over these of the mean between any two of
    their words, in bits, 0 to 1; None without such captions.
    """

    words: int
    entropy: float
    effective_places: float
    places: int
    captions: int
    divergence: float | None

    @property
    def moving(self) -> bool | None:
        """Whether the divergence is at least `LEAST_DIVERGENCE`."""
        return None if self.divergence is None else self.divergence >= LEAST_DIVERGENCE

    def as_dict(self) -> dict[str, float | bool | None]:
        """The figures by name, with `moving`."""
        return {**vars(self), "moving": self.moving}

    def table(self) -> str:
        """The figures as lines of text, with a warning if maps do not move."""
        return text_table(self.rows())

    def rows(self) -> list[Row]:
        """The rows of the table."""
        wide = f"nats; as wide as {self.effective_places:.1f} of {self.places} places"
        rows: list[Row] = [("entropy", self.entropy, wide)]
        if self.divergence is not None:
            unit = "bits between two words of a caption (0 the same map, 1 nothing in common)"
            rows.append(("divergence", self.divergence, unit))
        if self.moving is False:
            warning = (
                f"WARNING: the maps hardly move from word to word (divergence below "
                f"{LEAST_DIVERGENCE:g}): whatever a word is, the model looks at the same places"
            )
            rows.append((warning,))
        return rows


def map_spread(captions: Sequence[ArrayLike]) -> MapSpread:
    """The spread of the maps (T, rows, columns) of each of some captions.

    Raises `UserError` if no caption has a word.
    """
    maps = [np.asarray(each, dtype=np.float64) for each in captions]
    maps = [each for each in maps if len(each)]
    if not maps:
        raise UserError("not one caption has a word, so there are no maps to measure")
    entropies = np.concatenate([entropy(each) for each in maps])
    apart = [float(divergences(each).mean()) for each in maps if len(each) > 1]
    return MapSpread(
        words=len(entropies),
        entropy=float(entropies.mean()),
        effective_places=float(np.exp(entropies).mean()),
        places=maps[0][0].size,
        captions=len(apart),
        divergence=sum(apart) / len(apart) if apart else None,
    )


def _distributions(attention: ArrayLike) -> Floats:
    """Maps (..., rows, columns) -> (..., L), each summing to one."""
    maps = np.asarray(attention, dtype=np.float64)
    flat = maps.reshape(*maps.shape[:-2], -1)
    return np.asarray(flat / flat.sum(axis=-1, keepdims=True))


def _entropy(distributions: Floats) -> Floats:
    """(..., L) -> (...,), in nats."""
    logarithms = np.log(np.where(distributions > 0, distributions, 1.0))
    return np.asarray(-(distributions * logarithms).sum(axis=-1))
