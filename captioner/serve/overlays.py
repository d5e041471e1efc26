"""Files with captions drawn over their photos."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from captioner.caption import Caption
from captioner.render import PageCaption, PageItem, encode_gif, html_page, panels
from captioner.render.attention_checks import check_attention
from captioner.render.region import Region

_MOST_CELLS = 64 * 64

_LogProbability = Annotated[float, Field(ge=-1e9, le=0)]


class DrawnCaption(BaseModel):
    """A caption with its maps, (T, rows, columns), as /api/caption answers it."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=1, max_length=100
    )
    maps: list[list[list[float]]]
    log_probability: _LogProbability | None = None
    word_log_probabilities: list[_LogProbability] | None = None
    score: _LogProbability | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        rows, columns = self.map_shape
        terms = self.word_log_probabilities
        try:
            if rows * columns > _MOST_CELLS:
                raise ValueError(f"a map has more than {_MOST_CELLS:,} cells")
            check_attention(self.words, self.maps)
            if terms is not None and len(terms) != len(self.words):
                raise ValueError("there are not as many word_log_probabilities as words")
        except ValueError as error:
            raise PydanticCustomError("caption", "{reason}", {"reason": str(error)}) from None
        return self

    @property
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of the first map."""
        rows = self.maps[0] if self.maps else []
        return len(rows), len(rows[0]) if rows else 0

    @classmethod
    def all_of(cls, caption: Caption) -> list[DrawnCaption]:
        """A caption and its alternatives, but for those without words."""
        return [
            cls.model_construct(maps=each.attention.tolist(), **each.as_dict())
            for each in (caption, *caption.alternatives)
            if each.words
        ]


@dataclass(frozen=True)
class Drawing:
    """A photo, its captions, best first, and the part of it that the maps cover."""

    name: str
    photo: Image.Image
    region: Region
    captions: Sequence[DrawnCaption]


@dataclass(frozen=True)
class Format:
    """A kind of file. holds_many: photos, not one only."""

    media_type: str
    holds_many: bool
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
"""Kinds of files, by the ending of their names."""
