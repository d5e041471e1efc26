"""Scores attention maps against the things that words name, by word and on average."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from captioner.data.boxes import Box
from captioner.data.grounding import Target
from captioner.data.records import ImageId
from captioner.evaluation.attention_correctness import centre_prior, mass_inside, pointing
from captioner.evaluation.map_spread import entropy
from captioner.evaluation.target_cells import TargetCells, target_cells

WORDS_SHOWN = 15
"""Rows of a table by word, of the most frequent words."""


@dataclass(frozen=True)
class AgainstBaselines:
    """A measure, 0 to 1, of a word's map, of even attention and of the centre prior."""

    attention: float
    uniform: float
    centre: float


@dataclass(frozen=True)
class GroundedWord:
    """A word's map against the word's target.

    mass: mass inside; that of uniform attention is the target's share of the map.
    pointing: the pointing game.
    early, late: mass inside this target of the previous and of the next word's map; None if there
        is no such word or it has the same target ("red" and "circle" of "a red circle").
    """

    mass: AgainstBaselines
    pointing: AgainstBaselines
    early: float | None
    late: float | None


@dataclass(frozen=True)
class WordMap:
    """One word of a caption and its map.

    image: the photo's name. position: of the word, from 0. entropy: of the map, in nats.
    grounded: None for words without a target in the part of the photo that the map covers.
    outside: there is a target, but outside of that part.
    """

    image: ImageId
    position: int
    word: str
    entropy: float
    grounded: GroundedWord | None = None
    outside: bool = False

    def as_dict(self) -> dict[str, Any]:
        """A flat record, one row of a table; None for measures that do not apply."""
        found = self.grounded
        return {
            "image": self.image,
            "position": self.position,
            "word": self.word,
            "entropy": self.entropy,
            "mass": found and found.mass.attention,
            "share": found and found.mass.uniform,
            "mass_centre_prior": found and found.mass.centre,
            "pointing": found and found.pointing.attention,
            "pointing_uniform": found and found.pointing.uniform,
            "pointing_centre_prior": found and found.pointing.centre,
            "mass_one_word_early": found and found.early,
            "mass_one_word_late": found and found.late,
            "target": "inside" if found else "outside" if self.outside else "none",
        }


def word_maps(
    image: ImageId,
    words: Sequence[str],
    attention: ArrayLike,
    targets: Sequence[Target | None] | None = None,
    photo_size: tuple[int, int] | None = None,
    region: Box | None = None,
) -> list[WordMap]:
    """Measure the maps of one caption.

    words: T. attention: (T, rows, columns), the map of each. targets: of each, or None.
    photo_size, region: width and height of the photo, and the part of it that the maps cover, in
        pixels; required with targets.
    """
    maps = np.asarray(attention, dtype=np.float64)
    if len(words) == 0:
        return []
    wide = entropy(maps)  # (T,)
    cells: list[TargetCells | None] = [None] * len(words)
    if targets is not None and any(target is not None for target in targets):
        if photo_size is None or region is None:
            raise ValueError("targets have no place without the photo's size and region")
        rows, columns = maps.shape[1:]
        cells = [
            None if target is None else target_cells(target, photo_size, region, (rows, columns))
            for target in targets
        ]
    return [
        WordMap(
            image=image,
            position=place,
            word=word,
            entropy=float(wide[place]),
            grounded=_grounded(maps, cells, place),
            outside=targets is not None and targets[place] is not None and cells[place] is None,
        )
        for place, word in enumerate(words)
    ]


def _grounded(
    maps: np.ndarray[Any, Any], cells: Sequence[TargetCells | None], place: int
) -> GroundedWord | None:
    own = cells[place]
    if own is None:
        return None

    def shifted(other: int) -> float | None:
        if not 0 <= other < len(cells):
            return None
        there = cells[other]
        if there is not None and np.array_equal(there.coverage, own.coverage):
            return None
        return float(mass_inside(maps[other], own.coverage))

    centre = centre_prior(*maps.shape[1:])
    return GroundedWord(
        mass=AgainstBaselines(
            attention=float(mass_inside(maps[place], own.coverage)),
            uniform=own.share,
            centre=float(mass_inside(centre, own.coverage)),
        ),
        pointing=AgainstBaselines(
            attention=float(pointing(maps[place], own.centres)),
            uniform=float(own.centres.mean()),
            centre=float(pointing(centre, own.centres)),
        ),
        early=shifted(place - 1),
        late=shifted(place + 1),
    )


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
        beyond = f"; {self.outside:,} more lie outside what the model saw" if self.outside else ""
        lines = [f"{self.words:,} words with a target, in {self.photos:,} photos{beyond}"]
        if self.not_annotated:
            lines.append(f"photos that are not annotated, and do not count: {self.not_annotated:,}")
        if self.mass is None or self.pointing is None:
            return "\n".join(lines)
        lines.append(f"{'':<20}{'mass inside':>12}{'pointing game':>15}")
        for name, field in (
            ("attention", "attention"),
            ("even attention", "uniform"),
            ("centre prior", "centre"),
        ):
            mass, points = getattr(self.mass, field), getattr(self.pointing, field)
            lines.append(f"{name:<20}{mass:>12.4f}{points:>15.4f}")
        for name, shift in (("one word early", self.early), ("one word late", self.late)):
            if shift.own is not None:
                lines.append(
                    f"{name:<20}{shift.shifted:>12.4f}   where the word's own map has "
                    f"{shift.own:.4f} ({shift.words:,} words)"
                )
        lines += ["", f"{'word':<20}{'count':>12}{'mass inside':>15}{'even':>10}{'pointing':>12}"]
        lines += [
            f"{word[:19]:<20}{count:>12,}{mass.attention:>15.4f}{mass.uniform:>10.4f}"
            f"{points.attention:>12.4f}"
            for word, (count, mass, points) in self.by_word.items()
        ]
        return "\n".join(lines)


def grounded_maps(
    words: Sequence[WordMap], most: int = WORDS_SHOWN, not_annotated: int = 0
) -> GroundedMaps:
    """Average over words, each counting once.

    most: the number of words in `by_word`. not_annotated: photos without annotations.
    """
    found = [(word, word.grounded) for word in words if word.grounded is not None]
    of_word: dict[str, list[GroundedWord]] = {}
    for word, grounded in found:
        of_word.setdefault(word.word, []).append(grounded)
    frequent = sorted(of_word, key=lambda word: (-len(of_word[word]), word))[:most]
    every = [grounded for _, grounded in found]
    return GroundedMaps(
        words=len(found),
        photos=len({word.image for word, _ in found}),
        outside=sum(word.outside for word in words),
        mass=_mean([grounded.mass for grounded in every]) if found else None,
        pointing=_mean([grounded.pointing for grounded in every]) if found else None,
        early=_shift(every, lambda grounded: grounded.early),
        late=_shift(every, lambda grounded: grounded.late),
        by_word={
            word: (
                len(of_word[word]),
                _mean([grounded.mass for grounded in of_word[word]]),
                _mean([grounded.pointing for grounded in of_word[word]]),
            )
            for word in frequent
        },
        not_annotated=not_annotated,
    )


def _mean(measures: Sequence[AgainstBaselines]) -> AgainstBaselines:
    columns = zip(*((m.attention, m.uniform, m.centre) for m in measures), strict=True)
    return AgainstBaselines(*(sum(column) / len(measures) for column in columns))


def _shift(words: Sequence[GroundedWord], of: Callable[[GroundedWord], float | None]) -> Shift:
    pairs = [(word.mass.attention, mass) for word in words if (mass := of(word)) is not None]
    if not pairs:
        return Shift(0, None, None)
    own, shifted = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return Shift(len(pairs), own, shifted)
