"""How a request wants captions or translations searched for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.fields import from_mapping, to_mapping
from captioner.serve.limits import Limits
from captioner.serve.problems import Problem, field_problem

OF_SAMPLING = ("temperature", "top_k", "top_p", "seed")
"""Fields that mean something only where captions are drawn."""

Options = TypeVar("Options", bound=SearchOptions)


def option_names(kind: type[SearchOptions]) -> list[str]:
    """The names of the fields of a search."""
    return list(kind.model_fields)


def from_texts(texts: Mapping[str, str], kind: type[SearchOptions]) -> dict[str, Any]:
    """The values of a form's fields, which are texts, by the types of the search's fields.

    A field that the search does not have stays a text.
    Raises `Problem` with status 422 naming the field that is not of its type.
    """
    types = {name: field.annotation for name, field in kind.model_fields.items()}
    return {name: _value(name, text.strip(), types.get(name, str)) for name, text in texts.items()}


def search_with(given: Mapping[str, Any], own: Options, limits: Limits) -> Options:
    """The model's own options with those given over them.

    Asking for more captions than the model's own beam holds widens the beam.
    Raises `Problem` with status 422 naming what is unknown, of another type or out of range, and
    for fields of sampling without `sample`.
    """
    values = dict(given)
    if "beam" not in values and type(values.get("n_best")) is int:
        values["beam"] = max(own.beam, values["n_best"])
    try:
        options = from_mapping(type(own), {**to_mapping(own), **values}, "search")
    except UserError as error:
        raise Problem(422, str(error)) from None
    if not options.sample:
        for name in OF_SAMPLING:
            if name in values:
                raise field_problem(name, "has no meaning without 'sample'")
    most = {"beam": limits.beam, "n_best": limits.beam, "maximum_length": limits.words}
    for name, limit in most.items():
        value = getattr(options, name)
        if value > max(limit, getattr(own, name)):
            raise field_problem(name, f"is {value}, and the limit is {limit}")
    return options


def _value(name: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text not in ("true", "false"):
            raise field_problem(name, f"should be true or false, found {text[:60]!r}")
        return text == "true"
    if kind is int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise field_problem(name, f"should be a whole number, found {text[:60]!r}")
        return int(text)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise field_problem(name, f"should be a number, found {text[:60]!r}") from None
    return text
