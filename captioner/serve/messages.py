"""What the HTTP interface takes and answers: forms, JSON and refusals."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import torch
from fastapi import HTTPException, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    create_model,
)
from pydantic_core import PydanticCustomError
from starlette.datastructures import UploadFile as File
from starlette.exceptions import HTTPException as FrameworkError

from captioner.caption.caption import Caption, sentence
from captioner.decoding.options import SearchOptions, TranslationSearch
from captioner.errors import UserError, did_you_mean, near_names
from captioner.render.web_page import phrases
from captioner.schema import error_sentence
from captioner.serve import Limits
from captioner.text.languages import ENGLISH

Options = TypeVar("Options", bound=SearchOptions)

_PLACES = 5
"""Decimal places of a weight of a map; 14x14 of them still add up to 1 within 0.001."""

_DEGREES = (0.4, 0.55)
"""Confidences from which the next phrase of `Phrases.sure` holds."""

_SCORE = "ranks the alternatives: the log-probability after length normalisation"


def _optional_fields(kind: type[SearchOptions]) -> type[BaseModel]:
    """The fields of a search with their types and ranges; None where a request leaves one out."""
    options: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        about = Field(description=field.description)
        options[name] = (
            Annotated[(field.annotation, *field.metadata, about)],
            Field(default_factory=lambda: None),  # OpenAPI would show a plain default.
        )
    return create_model(f"{kind.__name__}Fields", **options)


def _file(value: Any) -> Any:
    if not isinstance(value, File):
        raise PydanticCustomError("file", "expected a file, found text")
    return value


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

    @staticmethod
    def as_one(captions: Sequence[DrawnCaption]) -> Caption:
        """The first, with the others as its alternatives.

        Raises `ValueError` for other numbers of log-probabilities, and for ragged maps.
        """
        for each in captions:
            if len(each.word_log_probabilities or each.words) != len(each.words):
                raise ValueError("there are not as many word_log_probabilities as words")
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


class _PhotoForm(_optional_fields(SearchOptions)):  # type: ignore[misc]
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    photo: list[Annotated[UploadFile, BeforeValidator(_file)]] = Field(
        min_length=1, description="image files; /api/model gives the limits"
    )
    language: str | None = Field(
        default_factory=lambda: None,  # OpenAPI would show a plain default.
        description="of the captions: en or one of /api/model's",
    )


class CaptionForm(_PhotoForm):
    """Photos to be captioned, and how to search; the model's own options by default."""

    maps: bool = Field(True, description="add a map for each word")
    preview: bool = Field(
        False,
        description="add the photo, upright, as a JPEG of at most 1000 pixels a side in a data "
        "address",
    )


class OverlayForm(_PhotoForm):
    """Photos to be drawn on, and their captions."""

    format: Literal["png", "gif", "html"] = Field("png", description="kind of file")
    strength: float = Field(0.8, ge=0, le=1, description="of the overlay")
    captions: list[Json[Annotated[list[DrawnCaption], Field(min_length=1, max_length=20)]]] = Field(
        [],
        description="for each photo, as JSON, the 'captions' of /api/caption's answer; without "
        "them the photos are captioned first",
    )


class TranslationRequest(_optional_fields(TranslationSearch)):  # type: ignore[misc]
    """Sentences to be translated, and how to search; the model's own options by default."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    sentences: list[Annotated[str, Field(max_length=2000)]] = Field(min_length=1, max_length=16)
    language: str | None = Field(
        default_factory=lambda: None,
        description="one of /api/model's translators; by default its first",
    )


def search_with(request: BaseModel, own: Options, limits: Limits) -> Options:
    """The model's own options, and over them those of a request, within the limits."""
    names = set(type(own).model_fields)
    options = own.override(**request.model_dump(include=names, exclude_none=True))
    # A larger `n_best` has widened the beam, so it comes first.
    most = {"n_best": limits.beam, "beam": limits.beam, "maximum_length": limits.words}
    for name, limit in most.items():
        value = getattr(options, name)
        if value > max(limit, getattr(own, name)):
            raise UserError(f"field {name!r} is {value}, and the limit is {limit}")
    return options


class CaptionAnswer(BaseModel):
    """A caption of a photo."""

    caption: str
    words: list[str]
    score: float = Field(description=_SCORE)
    log_probability: float = Field(description="natural logarithm, the ending included")
    word_log_probabilities: list[float]
    confidence: float | None = Field(
        None, description="expected share of content words that people would use"
    )
    sure: bool | None = None
    confidence_in_words: str | None = None
    maps: list[list[list[float]]] | None = Field(
        None, description="for each word a map, row by row"
    )
    language: str | None = Field(None, description="of a translated caption")
    original: CaptionAnswer | None = Field(None, description="what was translated")

    @classmethod
    def all_of(cls, caption: Caption, maps: bool) -> list[CaptionAnswer]:
        """A caption and its alternatives, best first. maps: add those of the words."""
        answers = []
        for each in (caption, *caption.alternatives):
            answer = cls(**each.to_dict(), confidence_in_words=confidence_in_words(each))
            if maps:
                answer.maps = [
                    [[round(weight, _PLACES) for weight in row] for row in one]
                    for one in each.attention.tolist()
                ]
            answers.append(answer)
        return answers


class PhotoAnswer(BaseModel):
    """A photo and its captions."""

    name: str
    width: int
    height: int
    region: tuple[float, float, float, float] = Field(
        description="left, top, right, bottom in pixels: what the maps cover"
    )
    captions: list[CaptionAnswer] = Field(description="best first")
    preview: str | None = None


class UnreadablePhoto(BaseModel):
    """A photo that cannot be read."""

    name: str
    error: str


class CaptionsAnswer(BaseModel):
    """Captions of photos, in their order."""

    photos: list[PhotoAnswer | UnreadablePhoto]


class TranslationAnswer(BaseModel):
    """A translation of a sentence."""

    translation: str
    source_tokens: list[str]
    tokens: list[str]
    score: float = Field(description=f"{_SCORE}, and the coverage penalty")
    log_probability: float = Field(description="natural logarithm, the ending included")
    token_log_probabilities: list[float]
    alignment: list[list[float]] = Field(description="a row for each token of `tokens`")
    source_words: list[str]
    words: list[str]
    word_alignment: list[list[float]] = Field(description="a row for each word of `words`")
    truncated: int | None = Field(None, description="tokens at the end that were not read")
    cut: bool | None = Field(None, description="whether it ended only at `maximum_length`")


class SentenceAnswer(BaseModel):
    """A sentence and its translations."""

    source: str
    translations: list[TranslationAnswer] = Field(description="best first")


class TranslationsAnswer(BaseModel):
    """Translations of sentences, in their order."""

    translations: list[SentenceAnswer]


class HealthAnswer(BaseModel):
    """That the server answers."""

    status: str = "ok"
    waiting: int = Field(ge=0, description="requests not yet answered")


class CaptionerAnswer(BaseModel):
    """The captioning model."""

    map: tuple[int, int]
    confidence: bool
    search: SearchOptions


class TranslatorAnswer(BaseModel):
    """A translation model."""

    attends: bool
    maximum_source_length: int
    search: TranslationSearch


class ModelsAnswer(BaseModel):
    """The models, and what the server accepts."""

    version: str
    captioner: CaptionerAnswer
    languages: list[str] = Field(description="in which captions are offered, beside English")
    translators: dict[str, TranslatorAnswer] = Field(description="by the language they write")
    limits: Limits


def confidence_in_words(caption: Caption) -> str | None:
    """A caption's confidence as a phrase in its language; None where the model has none.

    Of a translation without the share of words, which is that of the English caption.
    """
    confidence = caption.confidence
    if confidence is None:
        return None
    sure = phrases(caption.language or ENGLISH).sure
    level = caption.drawn_doubt or sure[bisect(_DEGREES, confidence)]
    if caption.language is not None:
        return level
    tenths = round(10 * confidence)
    share = {0: "hardly any", 10: "nearly all"}.get(tenths, f"about {tenths} in 10")
    return f"{level}: people would use {share} of its words"


class ProblemAnswer(BaseModel):
    """Why a request is refused."""

    error: str = Field(description="one sentence")


def busy(reason: str) -> HTTPException:
    """Too much waits; another try is worth it after a few seconds."""
    return HTTPException(503, f"busy: {reason}", {"Retry-After": "2"})


def answer_problem(problem: FrameworkError) -> JSONResponse:
    """The answer that carries a problem."""
    sentence = problem.detail.encode("utf-8", "replace").decode()  # Half a character, in a name.
    return JSONResponse({"error": sentence}, problem.status_code, problem.headers)


async def on_problem(request: Request, error: Exception) -> JSONResponse:
    """Answers a `UserError`, our refusals and those of the framework, such as 404."""
    if not isinstance(error, FrameworkError):
        error = HTTPException(422, str(error))
    return answer_problem(error)


async def on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Answers a request whose fields do not fit the declared ones, by the first that does not."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = first["loc"][1:]  # After "body".
    if first["type"] == "json_invalid":
        return answer_problem(HTTPException(400, "the content is not JSON that can be read"))
    if not place:
        sentence = "the content should be a JSON object, of fields with values, as application/json"
    elif first["type"] == "extra_forbidden":
        known = request.scope["route"].body_field.field_info.annotation.model_fields
        sentence = f"unknown field {place[-1]!r}{did_you_mean(near_names(place[-1], known))}"
    else:
        sentence = error_sentence(first, place)
        if sentence == "field 'photo' is missing":
            sentence += ": send a form with it, as curl -F photo=@photo.jpg does"
    return answer_problem(HTTPException(422, sentence))


async def on_fault(request: Request, error: Exception) -> JSONResponse:
    """Answers with no detail where the server failed; the server's own output has the trace."""
    return answer_problem(HTTPException(500, "the server failed at this; its own output says how"))
