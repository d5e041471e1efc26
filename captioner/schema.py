"""Options declared once: type, range, default and description, checked by pydantic.

A section of a config is a class of `Config`; its fields say what they are:

    beam: int = Field(5, ge=1, le=1_000, description="beam size; 1 is greedy search")

YAML, saved JSON, the command line's options and `docs/configuration.md` are made from it.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, InstanceOf, ValidationError
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from captioner.errors import UserError, did_you_mean, near_names

SIZE = 65_536
"""The largest size of a layer or a batch."""

LENGTH = 10_000
"""The longest caption or sentence, in tokens."""

COUNT = 1_000_000_000
"""The most examples, words or steps."""

SEED = 2**63 - 1
"""The largest seed; torch's generators take no larger one."""

Instance = TypeVar("Instance", bound="Config")


class Config(BaseModel):
    """Base of every section: frozen, without other fields, types or infinite numbers.

    An integer is accepted for a float; no bool or text is accepted for a number. A check of
    several fields is a `model_validator` that raises `ValueError` with a sentence that begins with
    the name of one of them.

    Raises `UserError` naming the field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    removed: ClassVar[dict[str, str]] = {}
    """Fields that no longer exist, and what to use instead, for the error message."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(_sentence(type(self), error)) from None

    # Pydantic's mark: a nested section is validated in place, so that errors hold the whole path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def field_names(cls) -> list[str]:
        """The fields that messages list and suggest, sorted."""
        return sorted(cls.model_fields)

    def replace(self, **changes: Any) -> Self:
        """A copy with other values, checked anew. Raises `UserError` naming the field."""
        return type(self)(**{**dict(self), **changes})


class Records(Config):
    """Base of JSON files that others write: fields that are not declared are ignored.

    Their many records are `TypedDict`s in a list that ends at its first error (`FailFast`), with
    `pydantic.with_config(RECORD)`.
    """

    model_config = ConfigDict(extra="ignore")


RECORD = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

Text = InstanceOf[str]
"""A string, also one with half a character, which pydantic's `str` refuses."""


def from_mapping(kind: type[Instance], mapping: Any, where: str) -> Instance:
    """Validate a mapping as YAML or JSON gives it.

    where: names the file in messages.
    Raises `UserError` naming the field that is unknown, missing, ill-typed or out of range.
    """
    try:
        return kind.model_validate(dict(mapping) if isinstance(mapping, Mapping) else mapping)
    except ValidationError as error:
        raise UserError(f"{where}: {_sentence(kind, error)}") from None


def to_mapping(config: Config) -> dict[str, Any]:
    """A config as plain values, fit for JSON and YAML: the inverse of `from_mapping`."""
    return config.model_dump(mode="json")


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by `section.field`, with `prefix` before each name."""
    values: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


def _path(value: Any) -> Any:
    if isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    if isinstance(value, Path):
        return value
    raise PydanticCustomError("path_type", "not a path")


FilePath = Annotated[Path, BeforeValidator(_path)]
"""A path, from text that is not empty."""


def plain_type(annotation: Any) -> Any:
    """A field's type without `| None` and without pydantic's marks."""
    if typing.get_origin(annotation) is Annotated:
        return plain_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [each for each in typing.get_args(annotation) if each is not type(None)]
        return plain_type(rest[0]) if len(rest) == 1 else annotation
    return annotation


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a `Literal`; empty for every other type."""
    kind = plain_type(annotation)
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def section_of(annotation: Any) -> type[Config] | None:
    """The class of a nested section; None for every other type."""
    kind = plain_type(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Config) else None


def _names(kind: type[Config], prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields, those of nested sections included."""
    for name in [*kind.model_fields, *(set(kind.field_names()) - set(kind.model_fields))]:
        yield prefix + name
        field = kind.model_fields.get(name)
        section = section_of(field.annotation) if field is not None else None
        if section is not None:
            yield from _names(section, f"{prefix}{name}.")


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_unicode": "text",
    "path_type": "a path",
    "is_instance_of": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "names with values",
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least"),
    "less_than_equal": ("le", "at most"),
    "greater_than": ("gt", "above"),
    "less_than": ("lt", "below"),
}
_SIZES = {
    "too_long": ("at most", "max_length", "item"),
    "too_short": ("at least", "min_length", "item"),
    "string_too_long": ("at most", "max_length", "character"),
    "string_too_short": ("at least", "min_length", "character"),
}


def _sentence(kind: type[Config], error: ValidationError) -> str:
    """The first of pydantic's errors as one sentence; an unknown field comes before the rest."""
    errors = error.errors(include_url=False)
    first = next((each for each in errors if _is_unknown(each["type"])), errors[0])
    place, code = first["loc"], first["type"]
    if _is_unknown(code):
        return _unknown(kind, place)
    if code == "value_error" and place:
        message, section = str(first["ctx"]["error"]), _section_at(kind, place)
        starts = message.partition(" ")[0].partition(".")[0]
        if section is not None and starts in section.field_names():
            return f"{_dotted(place)}.{message}"
    return error_sentence(first, place)


def error_sentence(error: Mapping[str, Any], place: tuple[int | str, ...]) -> str:
    """One of pydantic's errors as a sentence. place: of the value, names and indices."""
    code, value, context = error["type"], error["input"], error.get("ctx", {})
    if place[-1:] == ("[key]",):  # A name of a dict that is no text.
        place, code = place[:-2], "dict_type"
    path = _dotted(place)
    if code == "missing" and isinstance(place[-1], int):
        return f"{_dotted(place[:-1])} has too few items"
    if code == "missing":
        return f"field {path!r} is missing"
    if code in _SIZES:
        words, name, noun = _SIZES[code]
        count = context[name]
        return f"{path} should have {words} {count:,} {noun}{'s' * (count != 1)}"
    if code == "literal_error":
        names = context["expected"].replace("'", "").replace(" or ", ", ")
        near = did_you_mean(near_names(value, names.split(", ")))
        return f"{path} {_show(value)} is not one of {names}{near}"
    if code == "value_error":
        return f"{path}: {context['error']}" if path else str(context["error"])
    if code in ("model_type", "model_attributes_type"):
        return f"{path + ': ' if path else ''}expected fields with values, found {_show(value)}"
    if code in _LIMITS:
        name, words = _LIMITS[code]
        return f"{path} {_show(value)} is not {words} {_number(context[name])}"
    if code in _WANTED:
        return f"{path} should be {_WANTED[code]}, found {_show(value)}"
    return f"{path}: {error['msg']}"


def _is_unknown(code: str) -> bool:
    return code in ("extra_forbidden", "invalid_key")


def _unknown(kind: type[Config], place: tuple[int | str, ...]) -> str:
    """Names the unknown field, and the fields that may have been meant."""
    *inside, name = place
    prefix = _dotted(tuple(inside))
    shown = _dotted(place) if isinstance(name, str) else f"{_dotted((*inside, ''))}{name}"
    message = f"unknown field {shown!r}"
    section = _section_at(kind, tuple(inside))
    if section is not None and name in section.removed:
        return f"field {shown!r} was removed: {section.removed[str(name)]}"
    siblings = section.field_names() if section is not None else []
    everywhere = list(_names(kind))
    meant = [each for each in everywhere if each.rpartition(".")[2] == name]
    if not meant and isinstance(name, str):
        near = near_names(name, siblings, 1)
        meant = [f"{prefix}.{each}" if prefix else each for each in near]
        last = {each.rpartition(".")[2]: each for each in reversed(everywhere)}
        meant = meant or [last[each] for each in near_names(name, last, 1, 0.75)]
    if meant:
        return f"{message}{did_you_mean(meant[:3])}"
    return f"{message}; the fields are {', '.join(siblings)}"


def _section_at(kind: type[Config], place: tuple[int | str, ...]) -> type[Config] | None:
    """The section that a place of pydantic's names; lists hold none."""
    section: type[Config] | None = kind
    for step in place:
        field = section.model_fields.get(str(step)) if section is not None else None
        section = section_of(field.annotation) if field is not None else None
    return section


def _dotted(place: tuple[int | str, ...]) -> str:
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step.isprintable() else _show(step))
    return text


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # A number of 5,000 digits; a thousand brackets.
        return "something too large to show"
    return text if len(text) <= 60 else f"{text[:57]}..."
