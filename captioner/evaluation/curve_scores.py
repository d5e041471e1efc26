"""Deletion and insertion over many photos: mean curves, areas and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.evaluation.deletion import Curves
from captioner.evaluation.evaluation_options import CONFIDENCE
from captioner.evaluation.significance import percentiles, resampled
from captioner.evaluation.text_table import Row, text_table
from captioner.render.curves import CurvePair

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CurveScore(CurvePair):
    """One of deletion and insertion over W words.

    attended, random: mean area under the words' curves, in probability.
    difference: attended less random; for good maps below 0 in deletion, above 0 in insertion.
    low, high: its `CONFIDENCE` interval by bootstrap over photos; None for a single photo.
    better: the share of words for which attended places count more than random ones; a tie is half.
    band, random_band: the intervals of the mean curves, None as `low` and `high`.
    """

    attended: float
    random: float
    difference: float
    low: float | None
    high: float | None
    better: float


@dataclass(frozen=True)
class CurveScores:
    """Deletion and insertion of W words of some photos."""

    words: int
    photos: int
    deletion: CurveScore
    insertion: CurveScore

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, nested, the curves as lists."""

        def plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in pairs}

        return asdict(self, dict_factory=plain)

    def table(self) -> str:
        """The areas as lines of text."""
        names = ("attended", "random", "difference", f"{CONFIDENCE:.0%} interval")
        rows: list[Row] = [("area under curve", *names, "words for which attended counts more")]
        for name, score in (("deletion", self.deletion), ("insertion", self.insertion)):
            interval = None if score.low is None else (score.low, score.high)
            areas = (score.attended, score.random, score.difference)
            rows.append((name, *areas, interval, f"{score.better:.1%}"))
        if self.photos < 2:
            rows.append(("a single photo says nothing about how far this holds for others",))
        return text_table(rows)


def curve_scores(photos: Sequence[Curves]) -> CurveScores:
    """Average the curves of photos, one of which has a word at least, each word counting once."""
    kept = [photo for photo in photos if len(photo.deletion)]

    def score(name: str, sign: int) -> CurveScore:
        own = [getattr(photo, name) for photo in kept]
        random = [getattr(photo, f"random_{name}") for photo in kept]
        return _score(own, random, kept[0].shares, sign)

    words = sum(len(photo.deletion) for photo in kept)
    return CurveScores(words, len(kept), score("deletion", -1), score("insertion", 1))


def _score(
    own: Sequence[Floats], random: Sequence[Floats], shares: Floats, sign: int
) -> CurveScore:
    """own, random: (W, S + 1) for each photo. sign: of the difference of good maps."""
    sums, random_sums = ([each.sum(axis=0) for each in curves] for curves in (own, random))
    terms = np.column_stack(([len(each) for each in own], sums, random_sums))  # (photos, 2 S + 3)

    def means(totals: Floats) -> list[Floats]:
        return np.split(totals[..., 1:] / totals[..., :1], 2, axis=-1)  # (..., S + 1) each

    curve, random_curve = means(terms.sum(axis=0))
    low = high = band = random_band = None
    if len(own) > 1:
        curves, random_curves = means(resampled(terms))  # (resamples, S + 1) each
        areas = np.trapezoid(curves - random_curves, shares)  # (resamples,)
        low, high = percentiles(np.asarray(areas)).tolist()
        band, random_band = percentiles(curves), percentiles(random_curves)
    gains = sign * np.concatenate(
        [np.trapezoid(one - other, shares) for one, other in zip(own, random, strict=True)]
    )  # (W,)
    return CurveScore(
        attended=float(np.trapezoid(curve, shares)),
        random=float(np.trapezoid(random_curve, shares)),
        difference=float(np.trapezoid(curve - random_curve, shares)),
        low=low,
        high=high,
        better=float(((gains > 1e-12) + 0.5 * (np.abs(gains) <= 1e-12)).mean()),
        shares=shares,
        curve=curve,
        band=band,
        random_curve=random_curve,
        random_band=random_band,
    )
