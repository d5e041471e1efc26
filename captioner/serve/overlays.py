"""Captions drawn over their photos, as files to be kept."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.caption import Caption
from captioner.render import PageCaption, PageItem, encode_gif, html_page, panels
from captioner.render.attention_checks import check_attention
from captioner.render.region import Region
from captioner.serve.limits import Limits
from captioner.serve.problems import Problem, field_problem

_MOST_CELLS = 64 * 64


@dataclass(frozen=True)
class Written:
    """A caption with all that drawing it takes.

    words: the T words. maps: (T, rows, columns). log_probability, word_log_probabilities: natural
    logarithms, where they are known. score: what captions are ranked by, likewise.
    """

    words: tuple[str, ...]
    maps: npt.NDArray[np.float64]
    log_probability: float | None = None
    word_log_probabilities: tuple[float, ...] | None = None
    score: float | None = None

    @classmethod
    def of(cls, caption: Caption) -> Written:
        """A caption that the model gave."""
        maps = caption.attention.double().numpy()
        terms = caption.word_log_probabilities
        return cls(caption.words, maps, caption.log_probability, terms, caption.score)


@dataclass(frozen=True)
class Drawing:
    """A photo with what is drawn over it: its captions, best first, and the part they cover."""

    name: str
    photo: Image.Image
    region: Region
    captions: Sequence[Written]


@dataclass(frozen=True)
class Format:
    """A kind of file. many: whether it holds several photos."""

    media_type: str
    many: bool
    draw: Callable[[Sequence[Drawing], float], bytes]


def _png(drawings: Sequence[Drawing], strength: float) -> bytes:
    (drawing,) = drawings
    caption = drawing.captions[0]
    terms = caption.word_log_probabilities
    picture = panels(
        drawing.photo,
        caption.words,
        caption.maps,
        drawing.region,
        title=drawing.name,
        probabilities=None if terms is None else [math.exp(term) for term in terms],
        strength=strength,
    )
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _gif(drawings: Sequence[Drawing], strength: float) -> bytes:
    (drawing,) = drawings
    caption = drawing.captions[0]
    return encode_gif(drawing.photo, caption.words, caption.maps, drawing.region, strength=strength)


def _html(drawings: Sequence[Drawing], strength: float) -> bytes:
    items = [
        PageItem.of(
            drawing.photo,
            drawing.region,
            [
                PageCaption(each.words, each.maps, each.log_probability, each.score)
                for each in drawing.captions
            ],
            drawing.name,
        )
        for drawing in drawings
    ]
    return html_page(items, strength=strength).encode("utf-8")


FORMATS = {
    "png": Format("image/png", False, _png),
    "gif": Format("image/gif", False, _gif),
    "html": Format("text/html; charset=utf-8", True, _html),
}
"""The files that can be had, by the end of their names."""


def captions_from_json(value: Any, limits: Limits) -> list[Written]:
    """The captions of one photo, as `/api/caption` answered them.

    Raises `Problem` with status 422 for what is not that.
    """
    if not isinstance(value, list) or not 0 < len(value) <= limits.beam:
        raise field_problem("captions", f"should be a list of 1 to {limits.beam} captions")
    found = [_caption(each, limits) for each in value]
    if len({each.maps.shape[1:] for each in found}) > 1:
        raise field_problem("captions", "has maps of different shapes")
    return found


def _caption(value: Any, limits: Limits) -> Written:
    if not isinstance(value, dict):
        raise field_problem("captions", "holds something that is not a caption")
    words, maps = value.get("words"), value.get("maps")
    if not isinstance(words, list) or not 0 < len(words) <= limits.words:
        raise field_problem("captions", f"needs 'words', a list of 1 to {limits.words}")
    if not all(isinstance(word, str) and 0 < len(word) <= 100 for word in words):
        raise field_problem("captions", "has a word that is not text of 1 to 100 characters")
    rows = maps[0] if isinstance(maps, list) and maps else []
    cells = rows[0] if isinstance(rows, list) and rows else None
    if maps is None or not isinstance(cells, list) or len(rows) * len(cells) > _MOST_CELLS:
        raise field_problem(
            "captions", f"needs 'maps' of at most {_MOST_CELLS:,} cells, one a word"
        )
    try:
        weights = check_attention(words, maps)
    except (ValueError, OverflowError, RecursionError) as error:
        raise field_problem("captions", f"cannot be drawn: {str(error)[:200]}") from None
    terms = value.get("word_log_probabilities")
    if terms is not None:
        if not isinstance(terms, list) or len(terms) != len(words):
            raise field_problem("captions", "needs as many 'word_log_probabilities' as words")
        terms = tuple(_not_above_0(term, "a log-probability") for term in terms)
    total, score = (
        None if value.get(name) is None else _not_above_0(value[name], what)
        for name, what in (("log_probability", "a log-probability"), ("score", "a score"))
    )
    return Written(tuple(words), weights, total, terms, score)


def _not_above_0(value: Any, what: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not -1e9 <= value <= 0:
        raise Problem(422, f"field 'captions' has {what} that is not from -1e9 to 0")
    return float(value)
