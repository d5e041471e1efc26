"""Tests maps: does a word's probability fall when the photo loses what its map shows?

Deletion: Petsiuk, Das and Saenko 2018, *RISE*, section 4.3, and Samek et al. 2017, *Evaluating the
Visualization of What a Deep Neural Network Has Learned*, section III, here with half of a map's
mass at once, since each step of theirs costs a pass of the encoder. Why a map may mean nothing:
Jain and Wallace 2019, *Attention is not Explanation*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from captioner.arrays import Array, Values
from captioner.caption.caption import Caption
from captioner.outcomes import Failed
from captioner.render.overlay import ErasedWord, Places, fit
from captioner.text.languages import ENGLISH, is_function_word


class Model(Protocol):
    """What the test asks of a `Captioner`, or of any other."""

    def annotations(self, photos: Any) -> Values:
        """Photos -> annotation vectors (B, L, D)."""

    def caption_annotations(self, annotations: Values, *, given: Any = None) -> list[Caption]:
        """Annotation vectors (B, L, D) -> captions, found or given."""


SHARE = 0.5  # Of a map's mass, in the places that are erased.
MOVES = 4  # Pictures erased elsewhere, a word.
BLUR = 1 / 12  # Standard deviation, as a share of the longer side.
_LONGEST_SIDE = 512


def with_erased(
    captioner: Model, captions: Iterable[Caption | Failed]
) -> Iterator[Caption | Failed]:
    """Captions of photos, tested as they come; translated ones pass as they are."""
    for caption in captions:
        if isinstance(caption, Failed) or caption.language or not caption.words:
            yield caption
        else:
            yield replace(caption, erased=erased_words(captioner, caption))


def attended(weights: Array) -> Places:
    """The fewest places (rows, columns) that hold `SHARE` of a map's mass."""
    order = np.argsort(-weights, axis=None, kind="stable")  # (L,)
    masses = np.cumsum(weights.ravel()[order], dtype=np.float64)  # (L,)
    count = 1 + int(np.searchsorted(masses, SHARE * masses[-1]))
    return _chosen(order[:count], weights.shape)


def moved(places: Places, count: int, generator: np.random.Generator) -> list[Places]:
    """The shape of the places, moved (around the edges) to where it overlaps least with them."""
    rows, columns = places.shape
    shifts = list(np.ndindex(rows, columns))[1:] or [(0, 0)]
    shapes = [np.roll(places, shift, axis=(0, 1)) for shift in shifts]
    overlaps = np.array([(shape & places).sum() for shape in shapes])  # (L,)
    shuffled = generator.permutation(len(shapes))
    nearest = shuffled[np.argsort(overlaps[shuffled], kind="stable")]
    return [shapes[place] for place in nearest[:count]]


def central(places: Places) -> Places:
    """As many places in the middle of the map."""
    rows, columns = places.shape
    down = np.arange(rows)[:, None] - (rows - 1) / 2  # (rows, 1)
    across = np.arange(columns) - (columns - 1) / 2  # (columns,)
    order = np.argsort(down**2 + across**2, axis=None, kind="stable")  # (L,)
    return _chosen(order[: places.sum()], places.shape)


def attended_least(weights: Array, places: Places) -> Places:
    """As many places that a map attends to least."""
    order = np.argsort(weights, axis=None, kind="stable")  # (L,)
    return _chosen(order[: places.sum()], places.shape)


def _chosen(flat: NDArray[np.intp], shape: tuple[int, ...]) -> Places:
    places = np.zeros(shape, dtype=bool)
    places.ravel()[flat] = True
    return places


def erased_words(
    captioner: Model, caption: Caption, is_measured: bool = False
) -> tuple[ErasedWord, ...]:
    """Test each content word of an English caption that has its photo.

    is_measured: with `centre` and `least`, in place of `instead`.
    """
    drawn, region_drawn, _ = caption.drawn()
    photo, region = fit(drawn, region_drawn, _LONGEST_SIDE, enlarge=False)
    blurred = photo.filter(ImageFilter.GaussianBlur(BLUR * max(photo.size)))
    left, top, right, bottom = map(round, region)

    def without(places: Places) -> Image.Image:
        mask = Image.new("L", photo.size)
        cells = Image.fromarray(255 * places.astype(np.uint8))
        size = right - left, bottom - top
        mask.paste(cells.resize(size, Image.Resampling.BILINEAR), (left, top))
        return Image.composite(blurred, photo, mask)

    def scores(annotations: Values) -> list[tuple[float, ...]]:
        given = [caption.words] * len(annotations)
        forced = captioner.caption_annotations(annotations, given=given)
        return [each.word_log_probabilities for each in forced]

    generator = np.random.default_rng(0)
    (whole,) = scores(captioner.annotations(photo))
    words = []
    for position, word in enumerate(caption.words):
        if is_function_word(word, ENGLISH):
            continue
        weights = caption.attention[position]
        places = attended(weights)
        tried = [places, *moved(places, MOVES, generator)]
        moves = len(tried) - 1
        if is_measured:
            tried += [central(places), attended_least(weights, places)]
        annotations = captioner.annotations(list(map(without, tried)))  # (B, L, D)
        shown, *others = [row[position] for row in scores(annotations)]
        instead = "" if is_measured else captioner.caption_annotations(annotations[:1])[0].text
        elsewhere = others[:moves]
        centre, least = others[moves:] or (None, None)
        words.append(
            ErasedWord(
                position=position,
                places=places,
                log_probability=whole[position],
                without=shown,
                elsewhere=sum(elsewhere) / moves,
                instead=instead,
                centre=centre,
                least=least,
            )
        )
    return tuple(words)
