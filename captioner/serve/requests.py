"""Forms and JSON that the HTTP interface takes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import UploadFile
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    create_model,
)
from pydantic_core import PydanticCustomError
from starlette.datastructures import UploadFile as File

from captioner.decoding import SearchOptions, TranslationSearch
from captioner.errors import UserError
from captioner.serve.limits import Limits
from captioner.serve.overlays import DrawnCaption
from captioner.serve.problems import Problem, field_problem

Options = TypeVar("Options", bound=SearchOptions)


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


def _one_shape(captions: list[DrawnCaption]) -> list[DrawnCaption]:
    if len({caption.map_shape for caption in captions}) > 1:
        raise PydanticCustomError("maps", "expected maps of one shape")
    return captions


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
    captions: list[
        Json[
            Annotated[
                list[DrawnCaption],
                Field(min_length=1, max_length=20),
                AfterValidator(_one_shape),
            ]
        ]
    ] = Field(
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
    """The model's own options, and over them those of a request.

    Raises `Problem` with status 422 for options that exclude each other or exceed the limits.
    """
    names = set(type(own).model_fields)
    given = request.model_dump(include=names, exclude_none=True)
    try:
        options = own.override(**given)
    except UserError as error:
        raise Problem(422, str(error)) from None
    # A larger `n_best` has widened the beam, so it comes first.
    most = {"n_best": limits.beam, "beam": limits.beam, "maximum_length": limits.words}
    for name, limit in most.items():
        value = getattr(options, name)
        if value > max(limit, getattr(own, name)):
            raise field_problem(name, f"is {value}, and the limit is {limit}")
    return options
