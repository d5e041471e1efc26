"""Scores a model's attention maps on photos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from captioner.csv_tables import Row, csv_records, text_table
from captioner.data.example import Example
from captioner.data.instances import Grounding
from captioner.errors import UserError
from captioner.evaluation.grounded_maps import GroundedMaps, WordMap, grounded_maps, word_maps
from captioner.evaluation.map_measures import divergences, entropy
from captioner.evaluation.scorer import caption_examples
from captioner.files import write_text
from captioner.vision.images import original_size

if TYPE_CHECKING:
    from captioner.caption import Caption, Captioner
    from captioner.decoding import SearchOptions

LEAST_DIVERGENCE = 0.02
"""Below this mean divergence, in bits, a model's maps do not move.

Measured: untrained models have at most 0.001, trained ones 0.06 (after one or two epochs) to 0.34.
A model of 0.23 falls to 0.015 if three quarters of each map are replaced by the caption's mean map.
Two Gaussians with a standard deviation of three cells, one cell apart, have 0.017.
"""


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


@dataclass(frozen=True)
class MapScores:
    """Scores of attention maps; None for those not asked for.

    photos: how many were captioned. words: every word of their captions, in order.
    spread: entropy of the maps, and divergence between them.
    grounded: maps against boxes and segments.
    exact: the share of captions that equal one of the photo's.
    """

    photos: int
    words: list[WordMap]
    spread: MapSpread
    grounded: GroundedMaps | None = None
    exact: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The figures, nested by kind; None for kinds not asked for."""
        return {
            "photos": self.photos,
            "words": len(self.words),
            "exact": self.exact,
            "spread": self.spread.as_dict(),
            "grounded": self.grounded and self.grounded.as_dict(),
        }

    def table(self) -> str:
        """The figures as text, a paragraph a kind."""
        first: list[Row] = [("photos", self.photos), ("words", len(self.words))]
        if self.exact is not None:
            first.append(("exact match", self.exact))
        parts = [text_table([*first, *self.spread.rows()])]
        if self.grounded is not None:
            parts.append(self.grounded.table())
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
    left_out: dict[str, str] | None = None,
    exact: bool = False,
) -> MapScores:
    """Caption photos by free-running search and measure the captions' maps.

    grounding: where the things are that words name; None measures only what needs no boxes. At
        least one of the photos must be annotated.
    search, batch_size, left_out: as for `caption_examples`.
    exact: report the share of captions that equal one of the photo's.
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
    grounded, share = None, None
    if grounding is not None:
        unknown = sum(examples[row].image_id not in grounding for row in captions)
        grounded = grounded_maps(words, not_annotated=unknown)
    if exact:
        right = sum(list(caption.words) in examples[row].words for row, caption in captions.items())
        share = right / len(captions)
    return MapScores(len(captions), words, spread, grounded, share)
