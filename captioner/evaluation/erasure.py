"""Scores the erase test of maps: how far words fall without what their maps show.

See `captioner.caption.erase`. Figures are falls of a word's log-probability, in nats, for places
erased by four choices (`CHOICES`), with bootstrap intervals over the photos (Efron 1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.caption.caption import Caption
from captioner.data.example import ImageId
from captioner.evaluation import CONFIDENCE, Figures
from captioner.evaluation.corpus import RESAMPLES, FloatArray
from captioner.tables import Row, text_table
from captioner.text.languages import word_kinds

CHOICES = ("map", "elsewhere", "centre", "least")
"""Which places are erased: half of the map's mass; as many elsewhere, in the shape of these, in the
middle of the map, and those attended to least."""


@dataclass(frozen=True)
class Fall:
    """A content word and its falls (4,), by `CHOICES`: a row of `captioner maps --erase --csv`."""

    image: ImageId
    position: int
    word: str
    kind: str
    falls: tuple[float, ...]

    def row(self) -> Figures:
        """Its fields for CSV."""
        names = [f"fall_{choice}" for choice in CHOICES]
        fields = {"image": self.image, "position": self.position, "word": self.word}
        return {**fields, "kind": self.kind, **dict(zip(names, self.falls, strict=True))}


def falls_of(image: ImageId, caption: Caption) -> list[Fall]:
    """The falls of the content words of a caption with `erased`, measured."""
    kinds = word_kinds(caption.words)
    falls = []
    for tested in caption.erased:
        erased = (tested.without, tested.elsewhere, tested.centre, tested.least)
        lost = tuple(tested.log_probability - (each or 0.0) for each in erased)
        word = caption.words[tested.position]
        falls.append(Fall(image, tested.position, word, kinds[tested.position] or "thing", lost))
    return falls


def erasure_scores(falls: Sequence[Fall]) -> Figures:
    """Means over words, by name.

    words: how many, in `photos` photos. fall: for each of `CHOICES` the mean, and its interval.
    difference: "map" less "elsewhere", the same. more_than_elsewhere: the share of words that fall
    further by their map. halved: the share whose probability halves at least. kinds: `words`,
    `fall` and `difference` by the kind of word.
    """
    lost = np.array([word.falls for word in falls])  # (W, 4)
    scores = _means(falls)
    scores["photos"] = len({word.image for word in falls})
    scores["more_than_elsewhere"] = float((lost[:, 0] > lost[:, 1]).mean())
    halved = (lost >= math.log(2)).mean(axis=0).tolist()  # (4,)
    scores["halved"] = dict(zip(CHOICES, halved, strict=True))
    kinds = sorted({word.kind for word in falls})
    scores["kinds"] = {
        kind: _means([each for each in falls if each.kind == kind]) for kind in kinds
    }
    return scores


def _means(falls: Sequence[Fall]) -> Figures:
    """`words`, `fall` and `difference` of `erasure_scores`; each figure a mean and its interval."""
    places = {image: place for place, image in enumerate(dict.fromkeys(w.image for w in falls))}
    sums = np.zeros((len(places), len(CHOICES) + 2))  # Of each photo, and its words.
    for word in falls:
        difference = word.falls[0] - word.falls[1]
        sums[places[word.image]] += (*word.falls, difference, 1)
    even = np.full(len(places), 1 / len(places))
    draws = np.random.default_rng(0).multinomial(len(places), even, size=RESAMPLES)  # (R, photos)
    means = _ratios(sums.sum(axis=0, keepdims=True))[0]  # (5,)
    edges = 50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)
    low, high = np.percentile(_ratios(draws @ sums), edges, axis=0)  # (5,) each
    figures = [
        {"mean": mean, "interval": [*interval]}
        for mean, *interval in zip(means.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    fall = dict(zip(CHOICES, figures[:-1], strict=True))
    return {"words": len(falls), "fall": fall, "difference": figures[-1]}


def _ratios(sums: FloatArray) -> FloatArray:
    """Sums (R, 6) over words, the last their number -> means (R, 5)."""
    return np.asarray(sums[:, :-1] / sums[:, -1:])


def erasure_table(scores: Figures) -> str:
    """The figures of `erasure_scores` as text."""
    header: Row = ("erased:", *CHOICES, "map less elsewhere", f"{CONFIDENCE:.0%}", "words")
    rows: list[Row] = [header]
    for name, means in [("fall, nats", scores), *scores["kinds"].items()]:
        falls = [means["fall"][choice]["mean"] for choice in CHOICES]
        apart = means["difference"]
        rows.append((name, *falls, apart["mean"], tuple(apart["interval"]), means["words"]))
    rows.append(("halved", *scores["halved"].values()))
    share = f"{scores['more_than_elsewhere']:.1%} of the words fall further by their map"
    return f"{text_table(rows)}\n{share} than by as many places elsewhere"
