"""How wide attention maps are, and whether they move from word to word. Needs no boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from captioner.errors import UserError
from captioner.evaluation.attention_correctness import check_maps

LEAST_DIVERGENCE = 0.02
"""Below this mean divergence, in bits, a model's maps do not move.

Measured: models with random weights or hardly trained have 0.001 at most; trained ones 0.06 (after
one epoch or two) to 0.34; of one that had 0.23, 0.015 is left when three quarters of each
map are replaced by the caption's mean map. Two wide spots (Gaussians with a standard deviation of
three cells) one cell apart have 0.017: a difference that nobody sees in a picture.
"""

Floats = NDArray[np.float64]


def entropy(attention: ArrayLike) -> Floats:
    """Entropy of each map (..., rows, columns), in nats: (...,).

    0 for all attention in one place, log L for attention spread evenly over L. Its exponential is
    the effective number of places: as many, looked at evenly, have the same entropy.
    Raises `UserError` as `check_maps` does.
    """
    return _entropy(_distributions(attention))


def divergences(attention: ArrayLike) -> Floats:
    """How far the maps (T, rows, columns) of every two words differ: (T * (T - 1) / 2,).

    The Jensen-Shannon divergence, in bits: 0 for equal maps, 1 for maps without a common place.
    Lin 1991, *Divergence Measures Based on the Shannon Entropy*.
    Raises `UserError` as `check_maps` does.
    """
    maps = _distributions(attention)  # (T, L)
    first, second = np.triu_indices(len(maps), k=1)
    own = _entropy(maps)  # (T,)
    middle = _entropy((maps[first] + maps[second]) / 2)
    nats = middle - (own[first] + own[second]) / 2
    return np.asarray(np.clip(nats / np.log(2), 0.0, 1.0))


@dataclass(frozen=True)
class MapSpread:
    """How wide the maps of a model are, and how far they move.

    words: how many maps. entropy: their mean entropy in nats. effective_places: the mean of the
    exponentials of their entropies, from 1 to `places`, the number of places L of a map.
    captions: captions of two words and more. divergence: mean over these of the mean divergence
    between any two of their words, in bits, 0 to 1; None without such captions.
    """

    words: int
    entropy: float
    effective_places: float
    places: int
    captions: int
    divergence: float | None

    @property
    def moving(self) -> bool | None:
        """Whether the maps differ from word to word, by `LEAST_DIVERGENCE` at least."""
        return None if self.divergence is None else self.divergence >= LEAST_DIVERGENCE

    def as_dict(self) -> dict[str, float | bool | None]:
        """The figures by name, with `moving`."""
        return {**vars(self), "moving": self.moving}

    def table(self) -> str:
        """The figures as lines of text, with a warning where maps do not move."""
        lines = [
            f"{'entropy':<20}{self.entropy:.3f} nats; as wide as "
            f"{self.effective_places:.1f} of {self.places} places"
        ]
        if self.divergence is not None:
            lines.append(
                f"{'divergence':<20}{self.divergence:.4f} bits between two words of a caption "
                "(0 the same map, 1 nothing in common)"
            )
        if self.moving is False:
            lines.append(
                f"WARNING: the maps hardly move from word to word (divergence below "
                f"{LEAST_DIVERGENCE:g}): whatever a word is, the model looks at the same places"
            )
        return "\n".join(lines)


def map_spread(captions: Sequence[ArrayLike]) -> MapSpread:
    """The spread of the maps (T, rows, columns) of each of some captions.

    Raises `UserError` where no caption has a word, and as `check_maps` does.
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
    maps = check_maps(attention)
    flat = maps.reshape(*maps.shape[:-2], -1)
    return np.asarray(flat / flat.sum(axis=-1, keepdims=True))


def _entropy(distributions: Floats) -> Floats:
    """(..., L) -> (...,), in nats."""
    logarithms = np.log(np.where(distributions > 0, distributions, 1.0))
    return np.asarray(-(distributions * logarithms).sum(axis=-1))
