"""Options declared once: type, range, default and description, checked by pydantic.

A section of a config is a class of `Config`; its fields say what they are:

    beam: int = Field(5, ge=1, le=1_000, description="beam size; 1 is greedy search")

YAML, saved JSON, the command line's options and `docs/configuration.md` are made from it.
"""

import os
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    PlainValidator,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import Self

from captioner.errors import UserError, did_you_mean, near_names
from captioner.files import JsonObject

LENGTH = 10_000  # The longest caption or sentence, in tokens.
COUNT = 1_000_000_000  # The most examples, words or steps.

Size = Annotated[int, Field(ge=1, le=65_536)]  # A layer's or a batch's.
Length = Annotated[int, Field(ge=1, le=LENGTH)]
Count = Annotated[int, Field(ge=1, le=COUNT)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]  # torch's generators take no larger one.
Fraction = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(ge=0.01, le=1)]  # At least one of a hundred.


def _path(path: Path) -> Path:
    if "\0" in f"{path}":
        raise PydanticCustomError("path", "Input should be a path without NUL")
    return Path(os.path.expanduser(path))


FilePath = Annotated[Path, Field(strict=False), AfterValidator(_path)]
"""From text; ~ is the user's folder, as shells do not write it in `data.images=~/photos`."""

NameOrPath = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]
Text = InstanceOf[str]  # Also with half a character, which pydantic's `str` refuses.

Instance = TypeVar("Instance", bound="Config")


class Config(BaseModel):
    """Base of every section: frozen, without other fields, types or infinite numbers.

    An integer is accepted for a float. A check of several fields is a `model_validator` that raises
    `ValueError` with a sentence that begins with the name of one of them.
    """

    # To defer building saves 35 ms of every start: most sections are not used.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    def __init__(self, **values: object) -> None:
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

    def replace(self, **changes: object) -> Self:
        """A copy with other values, checked anew."""
        return type(self)(**{**dict(self), **changes})


class Kinds(Config):
    """The base of several kinds of config, which the value of one of their fields tells apart.

    That field has a default. `Annotated[SerializeAsAny[Base], BeforeValidator(Base.of_kind)]` is
    the type of a section of any kind.
    """

    chosen_by: ClassVar[str]  # That field.
    kinds: ClassVar[dict[str, type[Config]]]  # By its value, or by the value's start, "timm/".

    @classmethod
    def of_kind(cls, fields: object) -> Self:
        """Validate fields as the kind that they name; what is no mapping is pydantic's to refuse.

        Raises `ValueError` with the nearest names for a kind that is not there.
        """
        if not isinstance(fields, Mapping):
            return fields  # type: ignore[return-value]
        value = fields.get(cls.chosen_by, cls.model_fields[cls.chosen_by].default)
        start = "".join(str(value).partition("/")[:2])
        if start not in cls.kinds:
            raise ValueError(f"{cls.chosen_by} {not_one_of(value, cls.kinds)}")
        return cls.kinds[start].model_validate(dict(fields))  # type: ignore[return-value]

    @classmethod
    def field_names(cls) -> list[str]:
        """The fields of all kinds."""
        return sorted({name for kind in cls.kinds.values() for name in kind.model_fields})


class Section(Config):
    """A section of a training config: a field's description may be the docstring below it.

    Reading them from the source takes time, 50 ms of a start if all sections did.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())


# For the classes below it: pydantic would read this file, in 10 ms of every start.
Section.model_config["use_attribute_docstrings"] = True


class Records(Config):
    """Base of JSON files by others, whose other fields are ignored; records are `TypedDict`s."""

    model_config = ConfigDict(extra="ignore")


def from_mapping(kind: type[Instance], mapping: object, where: str) -> Instance:
    """Validate a mapping of YAML or JSON. where: names the file in messages."""
    try:
        return kind.model_validate(dict(mapping) if isinstance(mapping, Mapping) else mapping)
    except ValidationError as error:
        raise UserError(f"{where}: {_sentence(kind, error)}") from None


def to_mapping(config: Config) -> JsonObject:
    """A config as plain values, for JSON and YAML: the inverse of `from_mapping`."""
    return config.model_dump(mode="json")


def flat(mapping: JsonObject, prefix: str = "") -> JsonObject:
    """The values of nested mappings by `section.field`, with `prefix` before each name."""
    values: JsonObject = {}
    for name, value in mapping.items():
        is_nested = isinstance(value, Mapping)
        values |= flat(value, f"{prefix}{name}.") if is_nested else {prefix + name: value}
    return values


def _id(value: object) -> int | str:
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise PydanticCustomError("id_type", "Input should be a whole number or text")


Id = Annotated[int | str, PlainValidator(_id)]
"""COCO's number of a record, or a text."""


def plain_type(annotation: object) -> object:
    """A field's type without `| None` and without pydantic's marks."""
    if typing.get_origin(annotation) is Annotated:
        return plain_type(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        rest = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        return plain_type(rest[0]) if len(rest) == 1 else annotation
    return annotation


def choices(annotation: object) -> tuple[str, ...]:
    """The values of a `Literal`; empty for every other type."""
    kind = plain_type(annotation)
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def section_of(annotation: object) -> type[Config] | None:
    """The class of a nested section; None for every other type."""
    kind = plain_type(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Config) else None


_UNKNOWN = ("extra_forbidden", "invalid_key")
_LONGEST_SENTENCE = 1_000  # In letters: a name or value of 100,000 is not printed whole.


def _sentence(kind: type[Config], error: ValidationError) -> str:
    """The first of pydantic's errors as one sentence; an unknown field comes before the rest."""
    errors = error.errors(include_url=False)
    first = next((error for error in errors if error["type"] in _UNKNOWN), errors[0])
    is_unknown = first["type"] in _UNKNOWN
    place = first["loc"]
    text = _unknown_field(kind, *map(str, place)) if is_unknown else error_sentence(first, place)
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}..."


def error_sentence(error: ErrorDetails, place: tuple[int | str, ...]) -> str:
    """One of pydantic's errors as a sentence. place: of the value, names and indices."""
    code, value = error["type"], error["input"]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    path = "".join(steps).removeprefix(".")
    if code == "missing":
        return f"field {path!r} is missing"
    if code == "literal_error":
        names = error["ctx"]["expected"].replace("'", "").replace(" or ", ", ")
        return f"{path} {not_one_of(value, names.split(', '))}"
    if code == "value_error":  # It begins with the name of a field.
        sentence = str(error["ctx"]["error"])
        return f"{path}{'.' if sentence[0].islower() else ': '}{sentence}".removeprefix(".")
    if code.endswith(("too_long", "too_short")):  # "List should have at most 3 items".
        return f"{path} {error['msg'].partition(' ')[2].replace(' after validation', '')}"
    words = error["msg"].removeprefix("Input ").partition(",")[0]  # "should be a valid integer".
    if code in ("model_type", "model_attributes_type"):  # Pydantic's messages name classes.
        words = "should be fields with values"
    return f"{path} {words[0].lower()}{words[1:]}, found {shown(value)}".strip()


def not_one_of(value: object, names: Collection[str]) -> str:
    """The end of a message: "'kat' is not one of cat, dog; did you mean 'cat'?"."""
    near = did_you_mean(near_names(value, names))
    return f"{shown(value)} is not one of {', '.join(names)}{near}"


def _unknown_field(kind: type[Config], *place: str) -> str:
    name, path, inside = place[-1], ".".join(place), ".".join(place[:-1])
    everywhere = [*_fields(kind)]
    if path in everywhere:  # A family lists the fields of all its kinds.
        return f"field {path!r} is for another kind of {inside}"
    meant = [field for field in everywhere if field.rpartition(".")[2] == name][:3]
    near = did_you_mean(meant or near_names(path, everywhere, 1))
    beside = [field for field in everywhere if field.rpartition(".")[0] == inside]
    known = ", ".join(field.rpartition(".")[2] for field in beside)
    return f"unknown field {path!r}{near or f'; the fields are {known}'}"


def _fields(kind: type[Config], prefix: str = "") -> Iterator[str]:
    """The dotted names of a section's fields, and of those nested in them."""
    yield from (prefix + name for name in kind.field_names())
    for name, field in kind.model_fields.items():
        if section := section_of(field.annotation):
            yield from _fields(section, f"{prefix}{name}.")


def shown(value: object) -> str:
    """A value in a message, cut at 60 letters."""
    try:
        text = "nothing" if value is None else repr(value)
    except (ValueError, RecursionError):  # A number of 5,000 digits; a thousand brackets.
        return "something too large to show"
    return text if len(text) <= 60 else f"{text[:57]}..."
