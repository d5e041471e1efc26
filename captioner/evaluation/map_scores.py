"""Scores a model's attention maps on photos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from captioner.csv_tables import csv_records
from captioner.data.example import Example
from captioner.data.instances import Grounding
from captioner.errors import UserError
from captioner.evaluation.caption_source import caption_examples
from captioner.evaluation.curve_scores import CurveScores, curve_scores
from captioner.evaluation.deletion import Curves, curves, random_orders
from captioner.evaluation.evaluation_options import CurveOptions
from captioner.evaluation.grounded_maps import GroundedMaps, WordMap, grounded_maps, word_maps
from captioner.evaluation.map_spread import MapSpread, map_spread
from captioner.evaluation.text_table import Row, text_table
from captioner.files import write_text
from captioner.progress import progress_bar
from captioner.text.languages import FUNCTION_WORDS
from captioner.vision.blur import blur_places, blurred
from captioner.vision.images import load_image, original_size

if TYPE_CHECKING:
    from captioner.caption import Caption, Captioner
    from captioner.decoding import SearchOptions

RANDOM_ORDERS = 4
"""Own maps moved at random, with which a word's map is compared."""


@dataclass(frozen=True)
class MapScores:
    """Scores of attention maps; None for those not asked for.

    photos: how many were captioned. words: every word of their captions, in order.
    spread: entropy of the maps, and divergence between them.
    grounded: maps against boxes and segments.
    curves: deletion and insertion over content words.
    without_curves: whether these were asked for, but no caption has a content word.
    exact: the share of captions that equal one of the source's.
    """

    photos: int
    words: list[WordMap]
    spread: MapSpread
    grounded: GroundedMaps | None = None
    curves: CurveScores | None = None
    exact: float | None = None
    without_curves: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The figures, nested by kind; None for kinds not asked for."""
        return {
            "photos": self.photos,
            "words": len(self.words),
            "exact": self.exact,
            "spread": self.spread.as_dict(),
            "grounded": self.grounded and self.grounded.as_dict(),
            "curves": self.curves and self.curves.as_dict(),
        }

    def table(self) -> str:
        """The figures as text, a paragraph a kind."""
        first: list[Row] = [("photos", self.photos), ("words", len(self.words))]
        if self.exact is not None:
            first.append(("exact match", self.exact))
        parts = [text_table([*first, *self.spread.rows()])]
        if self.grounded is not None:
            parts.append(self.grounded.table())
        heading = "blurring what was attended, and random places: "
        if self.curves is not None:
            heading += f"{self.curves.words:,} content words of {self.curves.photos:,} photos"
            parts.append(f"{heading}\n{self.curves.table()}")
        elif self.without_curves:
            parts.append(f"{heading}not one caption of these photos has content words")
        return "\n\n".join(parts)

    def write_csv(self, path: str) -> None:
        """Write a row a word, with the fields of `WordMap`.

        Raises `UserError` if the file cannot be written.
        """
        write_text(path, csv_records([vars(word) for word in self.words]))


def score_maps(
    captioner: Captioner,
    examples: Sequence[Example],
    grounding: Grounding | None = None,
    search: SearchOptions | None = None,
    batch_size: int = 50,
    curve_options: CurveOptions | None = None,
    left_out: dict[str, str] | None = None,
    exact: bool = False,
) -> MapScores:
    """Caption photos by free-running search and measure the captions' maps.

    grounding: where the things are that words name; None measures only what needs no boxes. At
        least one of the photos must be annotated.
    search, batch_size, left_out: as for `caption_examples`.
    curve_options: measure deletion and insertion curves too.
    exact: report the share of captions that equal one of the source's.
    Raises `UserError` as `caption_examples` does, if no caption has a word, and, before any is
    captioned, if no photo is annotated in `grounding`.
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
    grounded, share, found = None, None, None
    if grounding is not None:
        unknown = sum(examples[row].image_id not in grounding for row in captions)
        grounded = grounded_maps(words, not_annotated=unknown)
    if exact:
        right = sum(list(caption.words) in examples[row].words for row, caption in captions.items())
        share = right / len(captions)
    if curve_options is not None:
        found = _curves(captioner, examples, captions, curve_options)
    without_curves = curve_options is not None and found is None
    return MapScores(len(captions), words, spread, grounded, found, share, without_curves)


def caption_curves(
    captioner: Captioner,
    photo: Image.Image,
    caption: Caption,
    generator: np.random.Generator,
    steps: int = 10,
    orders: int = RANDOM_ORDERS,
    batch_size: int = 32,
) -> tuple[list[str], Curves]:
    """Deletion and insertion curves of one photo, with the W content words they are of.

    photo: as from `load_image`. caption: the model's own, or by `Captioner.teacher_forced`.
    generator: of the orders. steps: points of a curve after 0. orders: random ones to compare with.
    """
    kept = [place for place, word in enumerate(caption.words) if word not in FUNCTION_WORDS]
    said = [caption.words[place] for place in kept]
    maps = caption.attention[kept].numpy()  # (W, rows, columns)
    if not kept:
        none = np.empty((0, steps + 1))
        return said, Curves(np.arange(steps + 1) / steps, *[none] * 4)
    moved = random_orders(maps, orders, generator)
    probability = _probability(captioner, photo, caption, kept, batch_size)
    return said, curves(maps, probability, moved, generator, steps)


def _probability(
    captioner: Captioner,
    photo: Image.Image,
    caption: Caption,
    kept: Sequence[int],
    batch_size: int,
) -> Callable[[NDArray[np.bool_]], NDArray[np.float64]]:
    """The function that `curves` calls: places to blur -> the words' probabilities."""
    pixels = captioner.preprocessing(photo).to(captioner.device)  # (3, size, size)
    content_free = blurred(pixels)
    shape = caption.attention.shape[1:]

    def probability(taken: NDArray[np.bool_]) -> NDArray[np.float64]:
        told: list[list[float]] = []
        for first in range(0, len(taken), batch_size):
            places = torch.from_numpy(taken[first : first + batch_size]).view(-1, *shape)
            shown = blur_places(pixels, content_free, places.to(pixels.device))
            annotations = captioner.encode(shown)  # (N, L, D)
            forced = captioner.teacher_forced(annotations, [caption.words] * len(places))
            told += [[each.word_log_probabilities[place] for place in kept] for each in forced]
        return np.asarray(np.exp(told))  # (N, W)

    return probability


def _curves(
    captioner: Captioner,
    examples: Sequence[Example],
    captions: dict[int, Caption],
    options: CurveOptions,
) -> CurveScores | None:
    """Scores of the first photos' curves; None without a content word."""
    rows = list(captions)[: options.photos]
    found: list[Curves] = []
    with progress_bar("blurring", len(rows), "photos") as progress:
        for row in rows:
            generator = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(row,)))
            photo, steps = load_image(examples[row].path), options.steps
            found.append(caption_curves(captioner, photo, captions[row], generator, steps)[1])
            progress.update()
    if not any(len(of_photo.deletion) for of_photo in found):
        return None
    return curve_scores(found)
