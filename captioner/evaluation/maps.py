"""Scores attention maps: how wide they are, whether they move, whether they hit.

Mass inside: Liu, Mao, Sha and Yuille 2017, *Attention Correctness in Neural Image Captioning*,
section 3.2. Pointing game: Zhang, Lin, Brandt, Shen and Sclaroff 2016, *Top-down Neural Attention
by Excitation Backprop*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from captioner.caption.erase import erased_words
from captioner.data.example import Example, ImageId
from captioner.data.instances import Box, Grounding, Target
from captioner.errors import UserError
from captioner.evaluation import Figures, Scores
from captioner.evaluation.corpus import FloatArray as Floats
from captioner.evaluation.erasure import CHOICES, Fall, erasure_scores, erasure_table, falls_of
from captioner.evaluation.score import caption_examples
from captioner.tables import Row, figures_table, text_table
from captioner.vision.images import original_size

if TYPE_CHECKING:
    from captioner.caption.captioner import Captioner

CENTRE_PRIOR_WIDTH = 1 / 4  # Standard deviation, as a share of each side of the map.

# Below this mean divergence, in bits, a model's maps do not move. Measured: untrained models have
# at most 0.001, trained ones 0.06 (after one or two epochs) to 0.34.
LEAST_DIVERGENCE = 0.02

_TIE = 1e-6  # Two weights this close, as a share of the larger, are the same: the maps are float32.


def entropy(attention: ArrayLike) -> Floats:
    """Entropy of each map (..., rows, columns), in nats: (...,); log L for even attention."""
    maps = _normalised(attention)
    return np.asarray(-(maps * np.log(np.where(maps > 0, maps, 1.0))).sum(axis=(-2, -1)))


def divergences(attention: ArrayLike) -> Floats:
    """The Jensen-Shannon divergence in bits of every two maps of (T, rows, columns).

    (T * (T - 1) / 2,): 0 for equal maps, 1 for maps without a common place (Lin 1991, *Divergence
    Measures Based on the Shannon Entropy*).
    """
    maps = _normalised(attention)
    first, second = np.triu_indices(len(maps), k=1)
    entropies = entropy(maps)  # (T,)
    nats = entropy(maps[first] + maps[second]) - (entropies[first] + entropies[second]) / 2
    return np.asarray(np.clip(nats / np.log(2), 0.0, 1.0))


def _normalised(attention: ArrayLike) -> Floats:
    """Maps (..., rows, columns), each summing to one."""
    maps = np.asarray(attention, dtype=np.float64)
    return np.asarray(maps / maps.sum(axis=(-2, -1), keepdims=True))


def mass_inside(attention: ArrayLike, coverage: ArrayLike) -> Floats:
    """The share, 0 to 1, of each map's attention that lies in its target: (...,).

    attention: (..., rows, columns), not negative, not all zero; a map need not sum to one.
    coverage: (..., rows, columns), the share of each cell in the target.
    """
    return np.asarray((_normalised(attention) * np.asarray(coverage)).sum(axis=(-2, -1)))


def pointing(attention: ArrayLike, centres: ArrayLike) -> Floats:
    """Whether the most attended place of each map is in its target, 1 or 0: (...,).

    centres: (..., rows, columns) boolean, whether a cell's centre lies in the target.

    Cells that share the maximum share the hit, so even attention scores as a blind guess does.
    Stricter than Zhang et al. 2016, who accept 15 pixels beside the target.
    """
    weights = np.asarray(attention, dtype=np.float64)
    most = weights.max(axis=(-2, -1), keepdims=True)
    return mass_inside(weights >= most * (1 - _TIE), centres)


def centre_prior(rows: int, columns: int) -> Floats:
    """The map (rows, columns) of always attending to the middle: a Gaussian over the cells."""

    def bell(cells: int) -> Floats:
        edges = (np.arange(cells + 1) / cells - 0.5) / (CENTRE_PRIOR_WIDTH * math.sqrt(2))
        return np.diff([math.erf(edge) for edge in edges])

    return _normalised(np.outer(bell(rows), bell(columns)))


class TargetCells(NamedTuple):
    """A target on the cells of a map: the share of each in it, and whether its centre is."""

    coverage: Floats
    centres: NDArray[np.bool_]


def target_cells(
    target: Target, photo_size: tuple[int, int], region: Box, map_shape: tuple[int, int]
) -> TargetCells | None:
    """Lay a target, exactly, on the cells of a map; None if it lies outside the map's region.

    photo_size: width and height, in pixels, of the captioned photo, over which the target's own
        picture is stretched.
    region: the part of the photo that the map covers, in its pixels, as `Caption.region`.
    map_shape: rows and columns of the map.
    """
    shares, middles, centres = [], [], []
    for axis in (0, 1):  # x and y
        # Edges of the cells, in the target's pixels; between two cuts nothing changes.
        edges = np.linspace(region[axis], region[axis + 2], map_shape[1 - axis] + 1)
        edges *= target.size[axis] / photo_size[axis]
        of_boxes = [edge for box in target.boxes for edge in box[axis::2]]
        of_pixels = np.arange(0.0 if target.mask is None else target.size[axis] + 1.0)
        cuts = np.concatenate([edges, of_boxes, of_pixels])
        cuts = np.unique(np.clip(cuts, edges[0], edges[-1]))
        centres.append((edges[1:] + edges[:-1]) / 2)
        middles.append((cuts[1:] + cuts[:-1]) / 2)
        cell = np.searchsorted(edges, middles[-1], side="right") - 1  # (pieces,)
        share = np.zeros((len(edges) - 1, len(cell)))  # (cells, pieces), of each cell
        share[cell, np.arange(len(cell))] = np.diff(cuts) / np.diff(edges)[cell]
        shares.append(share)
    coverage = shares[1] @ _inside(target, middles[0], middles[1]) @ shares[0].T  # (rows, columns)
    if coverage.sum() <= 1e-9:
        return None
    return TargetCells(np.clip(coverage, 0.0, 1.0), _inside(target, centres[0], centres[1]))


def _inside(target: Target, x: Floats, y: Floats) -> NDArray[np.bool_]:
    """Whether points (y, x) of the target's picture lie in the target."""
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for left, top, right, bottom in target.boxes:
        inside |= np.outer((top <= y) & (y < bottom), (left <= x) & (x < right))
    if target.mask is not None:
        height, width = target.mask.shape
        row = np.clip(np.floor(y).astype(np.int64), 0, height - 1)
        column = np.clip(np.floor(x).astype(np.int64), 0, width - 1)
        inside |= target.mask[row[:, None], column]
    return inside


@dataclass(frozen=True)
class WordMap:
    """One word of a caption and its map: a row of `captioner maps --csv`.

    Without a target inside the part of the photo that the map covers, the measures are None.
    """

    image: ImageId
    position: int  # From 0.
    word: str
    entropy: float  # In nats.
    mass: float | None = None  # Inside the target.
    share: float | None = None  # The mass of even attention.
    mass_centre_prior: float | None = None
    pointing: float | None = None  # The pointing game.
    pointing_uniform: float | None = None
    pointing_centre_prior: float | None = None
    target: str = "none"  # Or "inside", or "outside".


MASSES = ("mass", "share", "mass_centre_prior")
HITS = ("pointing", "pointing_uniform", "pointing_centre_prior")
"""Each of a word's own map, of even attention and of the centre prior."""


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
    rows, columns = maps.shape[1:]
    uniform, centre = np.ones((rows, columns)), centre_prior(rows, columns)
    triples = zip(words, entropy(maps).tolist(), targets or [None] * len(words), strict=True)
    records = []
    for place, (word, nats, target) in enumerate(triples):
        record = WordMap(image, place, word, nats)
        if target is not None:
            record = replace(record, target="outside")
            if cells := target_cells(target, photo_size, region, (rows, columns)):
                three = np.stack([maps[place], uniform, centre])
                masses = mass_inside(three, cells.coverage).tolist()
                hits = pointing(three, cells.centres).tolist()
                measures: Figures = dict(zip((*MASSES, *HITS), [*masses, *hits], strict=True))
                record = replace(record, target="inside", **measures)
        records.append(record)
    return records


def grounded_maps(words: Sequence[WordMap], not_annotated: int = 0) -> Figures:
    """Means over all words with a target, by name.

    not_annotated: captioned photos without annotations; their words do not count.

    words: with a target, in `photos` photos. outside: words whose target lies outside of what the
    model saw; they do not count. mass_inside, pointing_game: of the words' maps (`attention`), of
    even attention (`uniform`) and of the centre prior (`centre`), None without words.
    """
    maps = [word for word in words if word.target == "inside"]
    return {
        "words": len(maps),
        "photos": len({word.image for word in maps}),
        "outside": sum(word.target == "outside" for word in words),
        "not_annotated": not_annotated,
        "mass_inside": _means(maps, MASSES),
        "pointing_game": _means(maps, HITS),
    }


def _means(words: Sequence[WordMap], fields: Sequence[str]) -> dict[str, float | None]:
    """Means of the fields for the words' maps, for even attention and for the centre prior."""
    means: dict[str, float | None] = {}
    for name, field in zip(("attention", "uniform", "centre"), fields, strict=True):
        means[name] = sum(getattr(word, field) for word in words) / len(words) if words else None
    return means


def map_spread(captions: Sequence[NDArray[np.floating]]) -> Figures:
    """How wide the maps (T, rows, columns) of captions are, and how far they move, by name.

    words: the number of maps. entropy: their mean, in nats. effective_places: the mean of the
    exponentials of their entropies, from 1 to `places`, the number of places L of a map.
    captions: of two words or more. divergence: the mean over these of the mean between any two of
    their words, in bits. moving: whether it is at least `LEAST_DIVERGENCE`. Both may be None.
    """
    captions = [maps for maps in captions if len(maps)]
    if not captions:
        raise UserError("not one caption has a word, so there are no maps to measure")
    entropies = np.concatenate([entropy(maps) for maps in captions])
    apart = [divergences(maps).mean() for maps in captions if len(maps) > 1]
    divergence = float(np.mean(apart)) if apart else None
    return {
        "words": len(entropies),
        "entropy": float(entropies.mean()),
        "effective_places": float(np.exp(entropies).mean()),
        "places": math.prod(captions[0].shape[1:]),
        "captions": len(apart),
        "divergence": divergence,
        "moving": None if divergence is None else divergence >= LEAST_DIVERGENCE,
    }


def spread_table(spread: Figures) -> str:
    """The figures of `map_spread`, with a warning if maps do not move."""
    wide = f"nats; as wide as {spread['effective_places']:.1f} of {spread['places']} places"
    rows: list[Row] = [("entropy", spread["entropy"], wide)]
    if spread["divergence"] is not None:
        unit = "bits between two words of a caption (0 the same map, 1 nothing in common)"
        rows.append(("divergence", spread["divergence"], unit))
    if spread["moving"] is False:
        warning = f"the maps hardly move from word to word (divergence below {LEAST_DIVERGENCE:g})"
        rows.append((f"WARNING: {warning}: the model looks at the same places for every word",))
    return text_table(rows)


@dataclass(frozen=True)
class MapScores(Scores):
    """Scores of the maps of the words of captions."""

    photos: int
    words: list[WordMap]
    spread: Figures  # As from `map_spread`.
    grounded: Figures | None  # As from `grounded_maps`; None without boxes.
    falls: list[Fall]  # Of the erase test; empty without it.

    @property
    def erased(self) -> Figures | None:
        """As from `erasure_scores`; None without the erase test."""
        return erasure_scores(self.falls) if self.falls else None

    def to_dict(self) -> Figures:
        """The figures, nested by kind."""
        figures: Figures = {"photos": self.photos, "words": len(self.words)}
        return {**figures, "spread": self.spread, "grounded": self.grounded, "erased": self.erased}

    def table(self) -> str:
        """The figures as text, a paragraph a kind."""
        counts = figures_table({"photos": self.photos, "words": len(self.words)})
        paragraphs = [f"{counts}\n{spread_table(self.spread)}"]
        if self.grounded is not None:
            grounded = dict(self.grounded)
            first = {"words with a target": grounded.pop("words")}
            first["in photos"] = grounded.pop("photos")
            paragraphs.append(figures_table(first | grounded))
        if (erased := self.erased) is not None:
            paragraphs.append(erasure_table(erased))
        return "\n\n".join(paragraphs)

    def rows(self) -> list[Figures]:
        """A row a word, with the fields of `WordMap`, and the falls of the erase test."""
        names = [f"fall_{choice}" for choice in CHOICES] if self.falls else []
        falls = {(fall.image, fall.position): fall.falls for fall in self.falls}
        nothing = (None,) * len(names)
        rows = []
        for word in self.words:
            lost = falls.get((word.image, word.position), nothing)
            rows.append({**vars(word), **dict(zip(names, lost, strict=True))})
        return rows


def score_maps(
    captioner: Captioner,
    examples: Sequence[Example],
    *,
    grounding: Grounding | None = None,
    erase: bool = False,
    **options: Any,
) -> MapScores:
    """Caption photos, without teacher forcing, and measure the captions' maps.

    grounding: where the things are that words name; None measures only what needs no boxes.
    erase: whether to test the maps of content words by erasing what they show.
    options: of `caption_examples`.
    """
    if grounding is not None and not any(photo.image_id in grounding.images for photo in examples):
        raise UserError(f"not one of {len(examples):,} photos is annotated in {grounding.source}")
    words: list[WordMap] = []
    falls: list[Fall] = []
    maps, unknown = [], 0
    for example, caption in caption_examples(captioner, examples, **options):
        image, targets, size = example.image_id, None, (1, 1)
        if grounding is not None:
            targets = grounding.targets(image, caption.words)
            unknown += image not in grounding.images
            size = original_size(captioner.preprocessing.load(example.source))
        assert caption.region is not None  # Its photo is known.
        words += word_maps(image, caption.words, caption.attention, targets, size, caption.region)
        maps.append(caption.attention)
        if erase:
            tested = erased_words(captioner, caption, is_measured=True)
            falls += falls_of(image, replace(caption, erased=tested))
    grounded = None if grounding is None else grounded_maps(words, not_annotated=unknown)
    return MapScores(len(maps), words, map_spread(maps), grounded, falls)
