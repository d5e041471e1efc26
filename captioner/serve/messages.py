"""What the HTTP interface takes and answers: forms and JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import UploadFile
from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    WithJsonSchema,
    create_model,
)

from captioner import __version__
from captioner.caption.caption import Caption, sentence
from captioner.decoding.options import SAMPLING, AnySearch, SearchOptions, TranslationSearch
from captioner.files import JsonObject
from captioner.outcomes import Failed
from captioner.outputs.record import CaptionFields
from captioner.render.page import jpeg_address
from captioner.serve import Limits
from captioner.vision.images import original_size
from captioner.vision.pixels import DIGEST

_NAME = r"^[^\x00-\x1f\x7f]*$"  # Without control characters.
_TEXT = r"^[^\x00-\x08\x0e-\x1f\x7f]*$"  # The same, but for white space.
_TAG = r"^([A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*)?$"  # Of a language, or none.
_DIGEST = r"^([0-9a-f]{64})?$"
_ALWAYS = ["caption", "words", "score", "log_probability", "word_log_probabilities", "keywords"]
_REQUIRED: JsonObject = {"required": _ALWAYS}
"""Fields that the answer has of every caption."""
_WITH_SAMPLE = {"required": ["sample"], "properties": {"sample": {"const": True}}}
_RULES: JsonObject = {"dependentSchemas": dict.fromkeys(SAMPLING, _WITH_SAMPLE)}
"""Of every search, which types and ranges of single fields do not say."""
_ONE_PHOTO: JsonObject = {
    "if": {"properties": {"format": {"const": "html"}}, "required": ["format"]},
    "else": {"properties": {"photo": {"maxItems": 1}}},
}
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
    word_confidence: list[Annotated[float, Field(ge=0, le=1)] | None] | None = None
    sure: bool | None = None
    language: str | None = Field(None, max_length=100)

    def caption(self) -> Caption:
        """Raises `ValueError` for another number of confidences than words, and ragged maps."""
        if len(self.word_confidence or self.words) != len(self.words):
            raise ValueError("there are not as many confidences as words")
        drawn: Any = self.model_dump(exclude={"maps"}) | {"attention": np.array(self.maps)}
        return Caption(sentence(self.words), log_probability=0, word_log_probabilities=(), **drawn)


_BINARY = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
"""OpenAPI 3.1's way to describe a file, and 3.0's, which generators of clients read."""


class _PhotoForm(_optional_fields(SearchOptions)):  # type: ignore[misc]
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, json_schema_extra=_RULES)

    photo: list[Annotated[UploadFile, WithJsonSchema(_BINARY)]] = Field(
        min_length=1, description="image files"
    )
    language: str | None = _optional(description="of the captions: en or one of /api/model's")


class CaptionForm(_PhotoForm):
    """Photos to be captioned, and how to search; the model's own options by default."""

    maps: bool = Field(True, description="add a map for each word")
    preview: bool = Field(False, description="add an upright JPEG of at most 1000 pixels a side")
    erase: bool = Field(False, description="test each word: its probability without its map")


class OverlayForm(_PhotoForm):
    """Photos to be drawn on, and their captions."""

    model_config = ConfigDict(json_schema_extra={**_RULES, **_ONE_PHOTO})

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

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, strict=True, json_schema_extra=_RULES
    )

    sentences: list[Annotated[str, Field(max_length=2000)]] = Field(min_length=1, max_length=16)
    language: str | None = _optional(description="by default that of the first translator")


class Edit(BaseModel):
    """A person's caption of a photo."""

    model_config = ConfigDict(extra="forbid", strict=True)

    image: str = Field(min_length=1, max_length=1000, pattern=_NAME, description="the photo's name")
    caption: str = Field(max_length=2000, pattern=_TEXT, description="empty: the photo has none")
    language: str = Field("", pattern=_TAG, description="of the caption: en, pt-BR")
    photo_digest: str = Field("", pattern=_DIGEST, description="as /api/caption answers it")


class CaptionAnswer(CaptionFields):
    """A caption of a photo."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=_REQUIRED)

    original: CaptionAnswer | None = Field(None, description="what was translated")
    maps: list[list[list[float]]] | None = Field(None, description="rows, for each word")


class PhotoAnswer(BaseModel):
    """A photo, its captions, and the region of its pixels that the maps cover."""

    name: str
    width: int
    height: int
    region: tuple[float, float, float, float] = Field(description="left, top, right, bottom")
    captions: list[CaptionAnswer] = Field(description="best first")
    photo_digest: str | None = Field(description="of the pixels, for /api/edits")
    preview: str | None = None


class ProblemAnswer(BaseModel):
    """Why a request is refused."""

    error: str = Field(description="one sentence")


class UnreadablePhoto(BaseModel):
    """A photo that cannot be read."""

    name: str
    error: str


class CaptionsAnswer(BaseModel):
    """Captions of photos, in their order."""

    photos: list[PhotoAnswer | UnreadablePhoto]
    note: str | None = Field(None, description="names words of `without` that the model lacks")


class TranslationAnswer(BaseModel):
    """A translation of a sentence."""

    translation: str
    source_tokens: list[str]
    tokens: list[str]
    score: float = Field(description="log-probability after normalisation and coverage penalty")
    log_probability: float = Field(description="natural logarithm, the ending included")
    token_log_probabilities: list[float]
    alignment: list[list[float]] = Field(description="a row for each token of `tokens`")
    source_words: list[str]
    words: list[str]
    word_alignment: list[list[float]] = Field(description="a row for each word of `words`")
    confidence: float = Field(description="geometric mean of the probabilities of the tokens")
    sure: bool
    truncated: int | None = Field(None, description="tokens at the end that were not read")
    cut: bool | None = Field(None, description="whether it ended only at `maximum_length`")


class SentenceAnswer(BaseModel):
    """A sentence and its translations."""

    source: str
    translations: list[TranslationAnswer] = Field(description="best first")


class TranslationsAnswer(BaseModel):
    """Translations of sentences, in their order."""

    translations: list[SentenceAnswer]


class CaptionerAnswer(BaseModel):
    """The captioning model."""

    map: tuple[int, int] = Field(validation_alias="map_shape")
    confidence: Annotated[bool, BeforeValidator(bool)]
    can_sample: bool = Field(validation_alias=AliasPath("backend", "can_sample"))
    search: SearchOptions


class TranslatorAnswer(BaseModel):
    """A translation model."""

    attends: bool
    maximum_source_length: int
    search: TranslationSearch


class EditsAnswer(BaseModel):
    """The captions that people wrote on the page."""

    table: str = Field(description="their file, as --edits names it")
    edits: list[Edit] = Field(description="one a photo")


class ModelsAnswer(BaseModel):
    """The models, and what the server accepts: attributes of the `Service`."""

    version: str = __version__
    title: str = Field(description="heading of the page; empty for its own")
    edits: EditsAnswer | None = Field(description="null: the page keeps no edits here")
    captioner: CaptionerAnswer
    languages: list[str] = Field(description="in which captions are offered, beside English")
    translators: dict[str, TranslatorAnswer] = Field(description="by the language they write")
    limits: Limits


def photo_answer(caption: Caption | Failed, maps: bool, preview: bool) -> JsonObject:
    """The fields of a `PhotoAnswer`, also maps and a preview; or why there are none."""
    if isinstance(caption, Failed):
        return {"name": caption.name, "error": caption.reason}
    photo: Any = caption.photo  # Decoded.
    width, height = original_size(photo)
    captions = []
    for version in (caption, *caption.alternatives):
        answer = version.to_dict()
        if maps:
            answer["maps"] = np.asarray(version.attention, float).round(_PLACES).tolist()
        captions.append(answer)
    return {
        "name": caption.name,
        "width": width,
        "height": height,
        "region": caption.region,
        "captions": captions,
        "photo_digest": photo.info[DIGEST] or None,
        "preview": jpeg_address(photo) if preview else None,
    }
