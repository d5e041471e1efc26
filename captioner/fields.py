"""Dataclasses from plain mappings: the one validation of YAML configs and saved JSON configs."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from captioner import schema
from captioner.errors import UserError

Instance = TypeVar("Instance")


def from_mapping(
    kind: type[Instance], mapping: Any, where: str, complete: bool = False
) -> Instance:
    """Build the dataclass `kind` from a mapping as YAML or JSON gives it.

    Fields may be bool, int, float (an integer will do), str, `Path`, a dataclass (from a nested
    mapping), `X | None`, `list[X]`, `tuple[X, ...]`, `tuple[X, Y, Z]` or `dict[str, X]`.
    `where` names the file, and the section for a nested mapping, in messages.
    `complete`: every field must be there, at all depths, those with a default as well.
    Raises `UserError` naming the field that is unknown, missing or of the wrong type.
    """
    if issubclass(kind, schema.Config):
        return schema.from_mapping(kind, mapping, where, complete)
    if not isinstance(mapping, Mapping):
        raise UserError(f"{where}: expected fields with values, found {_show(mapping)}")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}  # type: ignore[arg-type]
    types_of = typing.get_type_hints(kind)
    for name in mapping:
        if name not in fields:
            raise UserError(
                f"{where}: unknown field {name!r}; the fields are {', '.join(sorted(fields))}"
            )
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in mapping:
            values[name] = _convert(types_of[name], mapping[name], f"{where}: {name}", complete)
        elif complete or (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ):
            raise UserError(f"{where}: field {name!r} is missing")
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def to_mapping(instance: Any) -> dict[str, Any]:
    """The plain mapping of a dataclass, fit for JSON and YAML: the inverse of `from_mapping`."""
    if isinstance(instance, schema.Config):
        return schema.to_mapping(instance)
    return {
        field.name: _plain(getattr(instance, field.name)) for field in dataclasses.fields(instance)
    }


def flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by `section.field`, with `prefix` before each name."""
    found: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) or isinstance(value, schema.Config):
        return to_mapping(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def _convert(kind: Any, value: Any, where: str, complete: bool) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (argument for argument in arguments if argument is not type(None))
        return _convert(kind, value, where, complete)
    if dataclasses.is_dataclass(kind) or (
        isinstance(kind, type) and issubclass(kind, schema.Config)
    ):
        return from_mapping(kind, value, where, complete)  # type: ignore[arg-type]
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{where} should be a list, found {_show(value)}")
        if origin is tuple and arguments[-1] is not Ellipsis:
            if len(value) != len(arguments):
                raise UserError(f"{where} should have {len(arguments)} items, found {len(value)}")
            kinds: list[Any] = list(arguments)
        else:
            kinds = [arguments[0]] * len(value)
        return origin(
            _convert(k, item, f"{where}[{index}]", complete)
            for index, (k, item) in enumerate(zip(kinds, value, strict=True))
        )
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UserError(f"{where} should be names with values, found {_show(value)}")
        return {
            key: _convert(arguments[1], item, f"{where}.{key}", complete)
            for key, item in value.items()
        }
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # A whole number beyond the largest float.
            number = math.inf
        if not math.isfinite(number):
            raise UserError(f"{where} should be a finite number, found {_show(value)}")
        return number
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind in (bool, str) and isinstance(value, kind):
        return value
    if kind is Path and isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    names[Path] = "a path"
    raise UserError(f"{where} should be {names.get(kind, kind)}, found {_show(value)}")


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # A number of 5,000 digits; a thousand brackets.
        return "something too large to show"
    return text if len(text) <= 60 else f"{text[:57]}..."
