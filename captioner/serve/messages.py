"""Forms and JSON that the HTTP interface takes, and its answers."""

from bisect import bisect
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field, Json, create_model

from captioner.caption.caption import Caption, sentence
from captioner.decoding.options import AnySearch, SearchOptions, TranslationSearch
from captioner.outcomes import Failed
from captioner.render.page import jpeg_address, phrases
from captioner.serve import Limits
from captioner.text.languages import ENGLISH
from captioner.vision.images import original_size

_PLACES = 5  # Decimals of a weight of a map; 14x14 of them still add up to 1 within 0.001.


def _optional(**options: Any) -> Any:
    """A field that a request may leave out; OpenAPI would show a plain default of None."""
    return Field(default_factory=lambda: None, **options)


def _optional_fields(kind: type[AnySearch]) -> type[BaseModel]:
    """The fields of a search with their types and ranges, all optional."""
    limits = Limits()
    most = {"n_best": limits.beam, "beam": limits.beam, "maximum_length": limits.words}
    options: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        about = Field(description=field.description, le=most.get(name))
        options[name] = Annotated[(field.annotation, *field.metadata, about)], _optional()
    return create_model(f"{kind.__name__}Fields", **options)


class DrawnCaption(BaseModel):
    """A caption with its maps, (T, rows, columns), as /api/caption answers it."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=1, max_length=100
    )
    maps: list[list[list[float]]]
    word_log_probabilities: list[Annotated[float, Field(ge=-1e9, le=0)]] = []
    word_confidence: list[Annotated[float, Field(ge=0, le=1)] | None] | None = None
    sure: bool | None = None
    language: str | None = Field(None, max_length=100)

    def caption(self) -> Caption:
        """Raises `ValueError` for another number of maps or scores than words, and ragged maps."""
        terms = self.word_log_probabilities
        for name in ("maps", "word_log_probabilities", "word_confidence"):
            values = getattr(self, name)
            if values and len(values) != len(self.words):
                raise ValueError(f"there are not as many {name} as words")
        fields = self.model_dump(exclude={"maps"})
        try:
            maps = np.array(self.maps, np.float32)
        except ValueError:
            raise ValueError("the maps differ in their rows or columns") from None
        return Caption(sentence(self.words), log_probability=sum(terms), attention=maps, **fields)


class _PhotoForm(_optional_fields(SearchOptions)):  # type: ignore[misc]
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    photo: list[UploadFile] = Field(min_length=1, description="image files")
    language: str | None = _optional(description="of the captions: en or one of /api/model's")


class CaptionForm(_PhotoForm):
    """Photos to be captioned, and how to search; the model's own options by default."""

    maps: bool = Field(True, description="add a map for each word")
    preview: bool = Field(False, description="add an upright JPEG of at most 1000 pixels a side")


class OverlayForm(_PhotoForm):
    """Photos to be drawn on, and their captions."""

    format: Literal["png", "gif", "html"] = Field("png", description="kind of file")
    strength: float = Field(0.8, ge=0, le=1, description="of the overlay")
    captions: list[Json[Annotated[list[DrawnCaption], Field(min_length=1, max_length=20)]]] = Field(
        [], description="for each photo, as JSON, the 'captions' of /api/caption's answer"
    )

    def sent_captions(self) -> list[Caption]:
        """The captions of each photo as one with alternatives; raises as `DrawnCaption.caption`."""
        versions = [[drawn.caption() for drawn in photo] for photo in self.captions]
        return [replace(best, alternatives=tuple(others)) for best, *others in versions]


class TranslationRequest(_optional_fields(TranslationSearch)):  # type: ignore[misc]
    """Sentences to be translated, and how to search; the model's own options by default."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    sentences: list[Annotated[str, Field(max_length=2000)]] = Field(min_length=1, max_length=16)
    language: str | None = _optional(description="by default that of the first translator")


class ProblemAnswer(BaseModel):
    """Why a request is refused."""

    error: str = Field(description="one sentence")


def photo_answer(caption: Caption | Failed, maps: bool, preview: bool) -> dict[str, Any]:
    """A photo of /api/caption's answer, with maps and a preview if asked for."""
    if isinstance(caption, Failed):
        return {"name": caption.name, "error": caption.reason}
    photo: Any = caption.photo  # Decoded.
    width, height = original_size(photo)
    captions = []
    for version in (caption, *caption.alternatives):
        answer = replace(version, alternatives=()).to_dict()
        if sentence := confidence_in_words(version):
            answer["confidence_in_words"] = sentence
        if maps:
            answer["maps"] = np.asarray(version.attention, float).round(_PLACES).tolist()
        captions.append(answer)
    answer = {"name": caption.name, "width": width, "height": height, "region": caption.region}
    if preview:
        answer["preview"] = jpeg_address(photo)
    return answer | {"captions": captions}


def confidence_in_words(caption: Caption) -> str | None:
    """A caption's confidence as a phrase in its language; None where the model has none.

    Of a translation without the share of words, which is that of the English caption.
    """
    confidence = caption.confidence
    if confidence is None:
        return None
    sure = phrases(caption.language or ENGLISH).sure  # In three degrees.
    level = caption.drawn_doubt or sure[bisect((0.4, 0.55), confidence)]
    if caption.language is not None:
        return level
    tenths = round(10 * confidence)
    share = {0: "hardly any", 10: "nearly all"}.get(tenths, f"about {tenths} in 10")
    return f"{level}: people would use {share} of its words"
