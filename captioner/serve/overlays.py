"""Files with captions drawn over their photos."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from captioner.caption import Caption
from captioner.caption.caption import sentence
from captioner.caption.captioner import Captioned
from captioner.render import encode_gif, html_page
from captioner.render.attention_checks import check_attention

_MOST_CELLS = 64 * 64


class DrawnCaption(BaseModel):
    """A caption with its maps, (T, rows, columns), as /api/caption answers it."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=1, max_length=100
    )
    maps: list[list[list[float]]]
    word_log_probabilities: list[Annotated[float, Field(ge=-1e9, le=0)]] | None = None
    sure: bool | None = None
    language: str | None = Field(None, max_length=100)

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

    @staticmethod
    def as_one(captions: Sequence[DrawnCaption]) -> Caption:
        """The first, with the others as its alternatives."""
        best, *others = [
            Caption(
                text=sentence(each.words),
                words=tuple(each.words),
                log_probability=0.0,  # Not drawn.
                word_log_probabilities=tuple(each.word_log_probabilities or ()),
                attention=torch.tensor(each.maps),
                sure=each.sure,
                language=each.language,
            )
            for each in captions
        ]
        return replace(best, alternatives=tuple(others))


MEDIA_TYPES = {"png": "image/png", "gif": "image/gif", "html": "text/html; charset=utf-8"}
"""Of files, by the ending of their names."""


def draw(kind: str, drawings: Sequence[Captioned], strength: float) -> bytes:
    """The content of a file. drawings: several for "html", otherwise one."""
    if kind == "html":
        items = [drawing.caption.page_item(drawing.name) for drawing in drawings]
        return html_page(items, strength).encode("utf-8")
    (drawing,) = drawings
    caption = drawing.caption
    if kind == "gif":
        return encode_gif(*caption.drawn(), strength=strength, doubt=caption.drawn_doubt)
    buffer = io.BytesIO()
    caption.panels(drawing.name, strength).save(buffer, format="PNG")
    return buffer.getvalue()
