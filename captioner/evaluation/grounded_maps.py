"""Scores attention maps against the things that words name, by word and on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from captioner.csv_tables import Row, text_table
from captioner.data.example import ImageId
from captioner.data.instances import Box, Target
from captioner.evaluation.map_measures import (
    TargetCells,
    centre_prior,
    entropy,
    mass_inside,
    pointing,
    target_cells,
)

WORDS_SHOWN = 15
"""Rows of a table by word, of the most frequent words."""

MASS = ("mass", "share", "mass_centre_prior")
POINTING = ("pointing", "pointing_uniform", "pointing_centre_prior")
"""Fields of a word's map, of even attention and of the centre prior."""


@dataclass(frozen=True)
class AgainstBaselines:
    """The mean of a measure, 0 to 1, of words' maps, of even attention and of the centre prior."""

    attention: float
    uniform: float
    centre: float


@dataclass(frozen=True)
class WordMap:
    """One word of a caption and its map: a row of `captioner maps --csv`.

    image: the photo's name. position: of the word, from 0. entropy: of the map, in nats.
    target: "inside" or "outside" the part of the photo that the map covers, or "none". Without one
        inside, the measures are None.
    mass: inside the target, of the map; share: of even attention, the target's share of the map.
    pointing: the pointing game.
    mass_one_word_early, mass_one_word_late: mass inside this target of the previous and of the next
        word's map; None if there is no such word or it has the same target ("red" and "circle" of
        "a red circle").
    """

    image: ImageId
    position: int
    word: str
    entropy: float
    mass: float | None = None
    share: float | None = None
    mass_centre_prior: float | None = None
    pointing: float | None = None
    pointing_uniform: float | None = None
    pointing_centre_prior: float | None = None
    mass_one_word_early: float | None = None
    mass_one_word_late: float | None = None
    target: str = "none"


def word_maps(
    image: ImageId,
    words: Sequence[str],
    attention: ArrayLike,
    targets: Sequence[Target | None] | None,
    photo_size: tuple[int, int],
    region: Box,
) -> list[WordMap]:
    """Measure the maps of one caption.

    words: T. attention: (T, rows, columns), the map of each. targets: of each, or None.
    photo_size, region: width and height of the photo, and the part of it that the maps cover, in
        pixels.
    """
    maps = np.asarray(attention, dtype=np.float64)
    if len(words) == 0:
        return []
    wide = entropy(maps)  # (T,)
    rows, columns = maps.shape[1:]
    targets = targets or [None] * len(words)
    cells = [
        None if target is None else target_cells(target, photo_size, region, (rows, columns))
        for target in targets
    ]
    found = []
    for place, word in enumerate(words):
        own = cells[place]
        measures: dict[str, Any] = {}
        if own is not None:
            measures = {"target": "inside", **_measures(maps, cells, place, own)}
        elif targets[place] is not None:
            measures = {"target": "outside"}
        found.append(WordMap(image, place, word, float(wide[place]), **measures))
    return found


def _measures(
    maps: np.ndarray[Any, Any], cells: Sequence[TargetCells | None], place: int, own: TargetCells
) -> dict[str, Any]:
    """The measures of `WordMap` of the map at a place. own: the cells of its target."""

    def shifted(other: int) -> float | None:
        if not 0 <= other < len(cells):
            return None
        there = cells[other]
        if there is not None and np.array_equal(there.coverage, own.coverage):
            return None
        return float(mass_inside(maps[other], own.coverage))

    centre = centre_prior(*maps.shape[1:])
    return {
        "mass": float(mass_inside(maps[place], own.coverage)),
        "share": own.share,
        "mass_centre_prior": float(mass_inside(centre, own.coverage)),
        "pointing": float(pointing(maps[place], own.centres)),
        "pointing_uniform": float(own.centres.mean()),
        "pointing_centre_prior": float(pointing(centre, own.centres)),
        "mass_one_word_early": shifted(place - 1),
        "mass_one_word_late": shifted(place + 1),
    }


@dataclass(frozen=True)
class Shift:
    """Mean mass inside a word's target: by the word's map and by its neighbour's.

    A map belongs to the step that emits its word, so `own` should be larger. `words` words count,
    those whose neighbour has another target; None without any.
    """

    words: int
    own: float | None
    shifted: float | None


@dataclass(frozen=True)
class GroundedMaps:
    """Means over all words with a target.

    words: with a target, in `photos` photos.
    outside: words whose target lies outside of what the model saw; they do not count.
    not_annotated: captioned photos without annotations; their words do not count.
    early, late: the shift by a word.
    by_word: count, mean mass inside and pointing game of the most frequent words, in that order.
    mass, pointing: None without words that have a target.
    """

    words: int
    photos: int
    outside: int
    mass: AgainstBaselines | None
    pointing: AgainstBaselines | None
    early: Shift
    late: Shift
    by_word: dict[str, tuple[int, AgainstBaselines, AgainstBaselines]]
    not_annotated: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The figures by name, nested, as `captioner maps --json` writes them."""
        return {
            "words": self.words,
            "photos": self.photos,
            "outside": self.outside,
            "not_annotated": self.not_annotated,
            "mass_inside": self.mass and vars(self.mass),
            "pointing_game": self.pointing and vars(self.pointing),
            "one_word_early": vars(self.early),
            "one_word_late": vars(self.late),
            "by_word": {
                word: {"count": count, "mass_inside": vars(mass), "pointing_game": vars(points)}
                for word, (count, mass, points) in self.by_word.items()
            },
        }

    def table(self) -> str:
        """The figures as lines of text."""
        rows: list[Row] = [("words with a target", self.words, f"in {self.photos:,} photos")]
        if self.outside:
            rows.append(("beside them", self.outside, "that lie outside what the model saw"))
        if self.not_annotated:
            rows.append(("not annotated", self.not_annotated, "photos, which do not count"))
        if self.mass is None or self.pointing is None:
            return text_table(rows)
        rows += [
            ("", "mass inside", "pointing game"),
            ("attention", self.mass.attention, self.pointing.attention),
            ("even attention", self.mass.uniform, self.pointing.uniform),
            ("centre prior", self.mass.centre, self.pointing.centre),
        ]
        for name, shift in (("one word early", self.early), ("one word late", self.late)):
            if shift.own is not None:
                own = f"where the word's own map has {shift.own:.4f} ({shift.words:,} words)"
                rows.append((name, shift.shifted, own))
        by_word = [
            (word, count, mass.attention, mass.uniform, points.attention)
            for word, (count, mass, points) in self.by_word.items()
        ]
        head = ("word", "count", "mass inside", "even", "pointing")
        return f"{text_table(rows)}\n\n{text_table([head, *by_word])}"


def grounded_maps(words: Sequence[WordMap], not_annotated: int = 0) -> GroundedMaps:
    """Average over words, each counting once. not_annotated: photos without annotations."""
    found = [word for word in words if word.target == "inside"]
    of_word: dict[str, list[WordMap]] = {}
    for word in found:
        of_word.setdefault(word.word, []).append(word)
    frequent = sorted(of_word, key=lambda word: (-len(of_word[word]), word))
    return GroundedMaps(
        words=len(found),
        photos=len({word.image for word in found}),
        outside=sum(word.target == "outside" for word in words),
        mass=_mean(found, MASS) if found else None,
        pointing=_mean(found, POINTING) if found else None,
        early=_shift(found, "mass_one_word_early"),
        late=_shift(found, "mass_one_word_late"),
        by_word={
            word: (len(its), _mean(its, MASS), _mean(its, POINTING))
            for word, its in ((word, of_word[word]) for word in frequent[:WORDS_SHOWN])
        },
        not_annotated=not_annotated,
    )


def _mean(words: Sequence[WordMap], fields: Sequence[str]) -> AgainstBaselines:
    columns = ([getattr(word, field) for word in words] for field in fields)
    return AgainstBaselines(*(sum(column) / len(words) for column in columns))


def _shift(words: Sequence[WordMap], field: str) -> Shift:
    kept = [word for word in words if getattr(word, field) is not None]
    if not kept:
        return Shift(0, None, None)
    own, shifted = (sum(getattr(w, each) for w in kept) / len(kept) for each in ("mass", field))
    return Shift(len(kept), own, shifted)
