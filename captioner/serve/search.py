"""Search options of a request, over the model's own."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, create_model

from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.serve.limits import Limits
from captioner.serve.problems import Problem, field_problem

Options = TypeVar("Options", bound=SearchOptions)


def optional_fields(kind: type[SearchOptions]) -> type[BaseModel]:
    """The fields of a search with their types and ranges; None where a request leaves one out."""
    options: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        about = Field(description=field.description)
        options[name] = (
            Annotated[(field.annotation, *field.metadata, about)],
            Field(default_factory=lambda: None),  # OpenAPI would show a plain default.
        )
    return create_model(f"{kind.__name__}Fields", **options)


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
