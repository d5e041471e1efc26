"""Scores the erase test of maps: how far words fall without what their maps show.

See `captioner.caption.erase`. A fall is of a word's log-probability, in nats, by four choices of
places to erase (`CHOICES`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from captioner.caption.caption import Caption
from captioner.data.example import ImageId
from captioner.evaluation import CONFIDENCE, Figures
from captioner.evaluation.corpus import FloatArray, Metric, confidence_intervals
from captioner.tables import Row, text_table
from captioner.text.languages import word_kinds

CHOICES = ("map", "elsewhere", "centre", "least")
"""Which places are erased: half of the map's mass; as many elsewhere, in their shape; as many in
the middle of the map; and those attended to least."""

DIFFERENCE = "map less elsewhere"


class Fall(NamedTuple):
    """A content word of a caption and its falls (4,), by `CHOICES`."""

    image: ImageId
    position: int
    kind: str
    falls: tuple[float, ...]


def falls_of(image: ImageId, caption: Caption) -> list[Fall]:
    """The falls of the content words of a caption with `erased`, measured."""
    kinds = word_kinds(caption.words)
    falls = []
    for word in caption.erased:
        erased = (word.without, word.elsewhere, word.centre or 0.0, word.least or 0.0)
        lost = tuple(word.log_probability - each for each in erased)
        falls.append(Fall(image, word.position, kinds[word.position] or "thing", lost))
    return falls


def erasure_scores(falls: Sequence[Fall]) -> Figures:
    """Means over words, by name.

    words: their number. means, intervals: of the fall by each of `CHOICES`, and of the difference
    of the first two; bootstrap intervals over the photos, None of a single photo. further_by_map:
    the share of words that fall further by their map than elsewhere. halved: the share of words
    whose probability halves at least. kinds: `words`, `means` and `intervals` by kind of word.
    """
    lost = np.array([word.falls for word in falls])  # (W, 4)
    halved = (lost >= math.log(2)).mean(axis=0).tolist()  # (4,)
    kinds = {kind: [word for word in falls if word.kind == kind] for _, _, kind, _ in falls}
    return {
        **_means(falls),
        "further_by_map": float((lost[:, 0] > lost[:, 1]).mean()),
        "halved": dict(zip(CHOICES, halved, strict=True)),
        "kinds": {kind: _means(kinds[kind]) for kind in sorted(kinds)},
    }


def _means(falls: Sequence[Fall]) -> Figures:
    """`words`, `means` and `intervals` of `erasure_scores`."""
    images = dict.fromkeys(word.image for word in falls)
    photos = {image: number for number, image in enumerate(images)}
    terms = np.zeros((len(photos), len(CHOICES) + 2))  # Of a photo: sums, words.
    for word in falls:
        difference = word.falls[0] - word.falls[1]
        terms[photos[word.image]] += (*word.falls, difference, 1)

    def of_totals(totals: FloatArray) -> FloatArray:
        return totals[..., :-1] / totals[..., -1:]

    metric = Metric((*CHOICES, DIFFERENCE), terms[:, 0], terms, of_totals)
    means = dict(zip(metric.names, metric.scores.tolist(), strict=True))
    intervals = confidence_intervals([metric]) if len(photos) > 1 else dict.fromkeys(means)
    return {"words": len(falls), "means": means, "intervals": intervals}


def erasure_table(scores: Figures) -> str:
    """The figures of `erasure_scores` as text."""
    rows: list[Row] = [("erased:", *CHOICES, DIFFERENCE, f"{CONFIDENCE:.0%}", "words")]
    for name, figures in [("fall, nats", scores), *scores["kinds"].items()]:
        interval = figures["intervals"][DIFFERENCE]
        rows.append((name, *figures["means"].values(), interval, figures["words"]))
    rows.append(("halved", *scores["halved"].values()))
    share = f"{scores['further_by_map']:.1%} of the words fall further by their map"
    return f"{text_table(rows)}\n{share} than by as many places elsewhere"
