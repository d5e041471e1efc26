"""Scores attention maps: how wide they are, whether they move, whether they lie on what words name.

By word, on average over words, and of all captions that a model writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from captioner.csv_tables import Row, csv_text, text_table
from captioner.data.example import Example, ImageId
from captioner.data.instances import Box, Grounding, Target
from captioner.errors import UserError
from captioner.evaluation.map_measures import (
    Floats,
    TargetCells,
    centre_prior,
    divergences,
    entropy,
    mass_inside,
    pointing,
    target_cells,
)
from captioner.evaluation.scorer import caption_examples
from captioner.files import write_text
from captioner.vision.images import original_size

if TYPE_CHECKING:
    from captioner.caption.caption import Caption
    from captioner.caption.captioner import Captioner
    from captioner.decoding.options import SearchOptions

LEAST_DIVERGENCE = 0.02
"""Below this mean divergence, in bits, a model's maps do not move.

Measured: untrained models have at most 0.001, trained ones 0.06 (after one or two epochs) to 0.34.
"""

WORDS_SHOWN = 15
"""Rows of a table by word, of the most frequent words."""


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
    """Measure the maps (T, rows, columns) of the T words of a caption.

    targets: of each word, or None. photo_size, region: width and height of the photo, and the part
        of it that the maps cover, in pixels.
    """
    maps = np.asarray(attention, dtype=np.float64)
    if len(words) == 0:
        return []
    targets = targets or [None] * len(words)
    shape = maps.shape[1], maps.shape[2]
    cells = [
        None if each is None else target_cells(each, photo_size, region, shape) for each in targets
    ]
    found = []
    for place, (word, nats) in enumerate(zip(words, entropy(maps).tolist(), strict=True)):
        measures: dict[str, Any] = {}
        if (own := cells[place]) is not None:
            measures = {"target": "inside", **_measures(maps, cells, place, own)}
        elif targets[place] is not None:
            measures = {"target": "outside"}
        found.append(WordMap(image, place, word, nats, **measures))
    return found


def _measures(
    maps: Floats, cells: Sequence[TargetCells | None], place: int, own: TargetCells
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
        "share": float(own.coverage.mean()),
        "mass_centre_prior": float(mass_inside(centre, own.coverage)),
        "pointing": float(pointing(maps[place], own.centres)),
        "pointing_uniform": float(own.centres.mean()),
        "pointing_centre_prior": float(pointing(centre, own.centres)),
        "mass_one_word_early": shifted(place - 1),
        "mass_one_word_late": shifted(place + 1),
    }


def grounded_maps(words: Sequence[WordMap], not_annotated: int = 0) -> dict[str, Any]:
    """Means over all words with a target, by name.

    not_annotated: captioned photos without annotations; their words do not count.

    words: with a target, in `photos` photos. outside: words whose target lies outside of what the
    model saw; they do not count. mass_inside, pointing_game: of the words' maps (`attention`), of
    even attention (`uniform`) and of the centre prior (`centre`); None without words.
    one_word_early, one_word_late: mass inside a word's target, by its `own` map and by its
    neighbour's (`shifted`), over the `words` words whose neighbour has another target. A map
    belongs to the step that emits its word, so `own` should be larger. by_word: the `count` and
    both measures of the most frequent words, in that order.
    """
    found = [word for word in words if word.target == "inside"]
    of_word: defaultdict[str, list[WordMap]] = defaultdict(list)
    for word in found:
        of_word[word.word].append(word)
    frequent = sorted(of_word.items(), key=lambda item: (-len(item[1]), item[0]))[:WORDS_SHOWN]
    return {
        "words": len(found),
        "photos": len({word.image for word in found}),
        "outside": sum(word.target == "outside" for word in words),
        "not_annotated": not_annotated,
        **(_grounded(found) if found else {"mass_inside": None, "pointing_game": None}),
        "one_word_early": _shift(found, "mass_one_word_early"),
        "one_word_late": _shift(found, "mass_one_word_late"),
        "by_word": {word: {"count": len(its), **_grounded(its)} for word, its in frequent},
    }


def _grounded(words: Sequence[WordMap]) -> dict[str, Any]:
    return {
        "mass_inside": _means(words, attention="mass", uniform="share", centre="mass_centre_prior"),
        "pointing_game": _means(
            words,
            attention="pointing",
            uniform="pointing_uniform",
            centre="pointing_centre_prior",
        ),
    }


def _shift(words: Sequence[WordMap], field: str) -> dict[str, Any]:
    kept = [word for word in words if getattr(word, field) is not None]
    return {"words": len(kept), **_means(kept, own="mass", shifted=field)}


def _means(words: Sequence[WordMap], **fields: str) -> dict[str, float | None]:
    """The means of some fields of words, by other names; None without words."""
    return {
        name: sum(getattr(word, field) for word in words) / len(words) if words else None
        for name, field in fields.items()
    }


def grounded_table(found: Mapping[str, Any]) -> str:
    """The figures of `grounded_maps` as lines of text."""
    rows: list[Row] = [("words with a target", found["words"], f"in {found['photos']:,} photos")]
    if found["outside"]:
        rows.append(("beside them", found["outside"], "that lie outside what the model saw"))
    if found["not_annotated"]:
        rows.append(("not annotated", found["not_annotated"], "photos, which do not count"))
    if not found["words"]:
        return text_table(rows)
    rows.append(("", "mass inside", "pointing game"))
    names = {"attention": "attention", "uniform": "even attention", "centre": "centre prior"}
    for key, name in names.items():
        rows.append((name, found["mass_inside"][key], found["pointing_game"][key]))
    for name in ("one word early", "one word late"):
        shift = found[name.replace(" ", "_")]
        if shift["words"]:
            own = f"where the word's own map has {shift['own']:.4f} ({shift['words']:,} words)"
            rows.append((name, shift["shifted"], own))
    by_word: list[Row] = [("word", "count", "mass inside", "even", "pointing")]
    for word, its in found["by_word"].items():
        mass = its["mass_inside"]
        pointed = its["pointing_game"]["attention"]
        by_word.append((word, its["count"], mass["attention"], mass["uniform"], pointed))
    return f"{text_table(rows)}\n\n{text_table(by_word)}"


def map_spread(captions: Sequence[ArrayLike]) -> dict[str, Any]:
    """How wide the maps (T, rows, columns) of captions are, and how far they move, by name.

    words: the number of maps. entropy: their mean, in nats. effective_places: the mean of the
    exponentials of their entropies, from 1 to `places`, the number of places L of a map.
    captions: of two words or more. divergence: the mean over these of the mean between any two of
    their words, in bits, 0 to 1. moving: whether it is at least `LEAST_DIVERGENCE`. Both are None
    without such captions.
    """
    maps = [np.asarray(each, dtype=np.float64) for each in captions]
    maps = [each for each in maps if len(each)]
    if not maps:
        raise UserError("not one caption has a word, so there are no maps to measure")
    entropies = np.concatenate([entropy(each) for each in maps])
    apart = [float(divergences(each).mean()) for each in maps if len(each) > 1]
    divergence = sum(apart) / len(apart) if apart else None
    return {
        "words": len(entropies),
        "entropy": float(entropies.mean()),
        "effective_places": float(np.exp(entropies).mean()),
        "places": maps[0][0].size,
        "captions": len(apart),
        "divergence": divergence,
        "moving": None if divergence is None else divergence >= LEAST_DIVERGENCE,
    }


def spread_table(found: Mapping[str, Any], rows: Sequence[Row] = ()) -> str:
    """The figures of `map_spread` below other rows, with a warning if maps do not move."""
    wide = f"nats; as wide as {found['effective_places']:.1f} of {found['places']} places"
    rows = [*rows, ("entropy", found["entropy"], wide)]
    if found["divergence"] is not None:
        unit = "bits between two words of a caption (0 the same map, 1 nothing in common)"
        rows.append(("divergence", found["divergence"], unit))
    if found["moving"] is False:
        warning = (
            f"WARNING: the maps hardly move from word to word (divergence below "
            f"{LEAST_DIVERGENCE:g}): whatever a word is, the model looks at the same places"
        )
        rows.append((warning,))
    return text_table(rows)


@dataclass(frozen=True)
class MapScores:
    """Scores of attention maps; None for those not asked for.

    photos: how many were captioned. words: every word of their captions, in order.
    spread, grounded: as from `map_spread` and `grounded_maps`.
    exact: the share of captions that equal one of the photo's.
    """

    photos: int
    words: list[WordMap]
    spread: dict[str, Any]
    grounded: dict[str, Any] | None = None
    exact: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The figures, nested by kind."""
        return {**vars(self), "words": len(self.words)}

    def table(self) -> str:
        """The figures as text, a paragraph a kind."""
        rows: list[Row] = [("photos", self.photos), ("words", len(self.words))]
        if self.exact is not None:
            rows.append(("exact match", self.exact))
        table = spread_table(self.spread, rows)
        return table if self.grounded is None else f"{table}\n\n{grounded_table(self.grounded)}"

    def write_csv(self, path: str) -> None:
        """Write a row a word, with the fields of `WordMap`."""
        write_text(path, csv_text([vars(word) for word in self.words]))


def score_maps(
    captioner: Captioner,
    examples: Sequence[Example],
    grounding: Grounding | None = None,
    search: SearchOptions | None = None,
    batch_size: int = 50,
    left_out: dict[str, str] | None = None,
    exact: bool = False,
) -> MapScores:
    """Caption photos by free-running search and measure the captions' maps.

    grounding: where the things are that words name; None measures only what needs no boxes.
    search, batch_size, left_out: as for `caption_examples`.
    exact: report the share of captions that equal one of the photo's.
    """
    if grounding is not None and not any(each.image_id in grounding for each in examples):
        raise UserError(f"not one of {len(examples):,} photos is annotated in {grounding}")
    words: list[WordMap] = []
    captions: dict[int, Caption] = {}
    for row, caption in caption_examples(captioner, examples, search, batch_size, left_out):
        captions[row] = caption
        image = examples[row].image_id
        targets = None if grounding is None else grounding.targets(image, caption.words)
        assert caption.region is not None  # Its photo is known.
        assert isinstance(caption.photo, Image.Image)
        size = original_size(caption.photo)
        words += word_maps(image, caption.words, caption.attention, targets, size, caption.region)
    spread = map_spread([caption.attention for caption in captions.values()])
    grounded, share = None, None
    if grounding is not None:
        unknown = sum(examples[row].image_id not in grounding for row in captions)
        grounded = grounded_maps(words, not_annotated=unknown)
    if exact:
        right = sum(list(caption.words) in examples[row].words for row, caption in captions.items())
        share = right / len(captions)
    return MapScores(len(captions), words, spread, grounded, share)
