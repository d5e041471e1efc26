"""Reads fields of JSON records and checks their types."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from captioner.errors import UserError

Value = TypeVar("Value")

_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    list: "a list",
    dict: "an object",
}


def checked(value: Any, kind: type[Value], where: str) -> Value:
    """Return `value`; raise `UserError`, naming `where`, if it is not a `kind`."""
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where} is not {_NAMES[kind]}")
    return value


def required(record: dict[str, Any], name: str, kind: type[Value], where: str) -> Value:
    """Return a field; raise `UserError`, naming `where`, if it is missing or not a `kind`."""
    if name not in record:
        raise UserError(f'{where} has no field "{name}"')
    return checked(record[name], kind, f'field "{name}" of {where}')


def optional(record: dict[str, Any], name: str, kind: type[Value], where: str) -> Value | None:
    """As `required`, but None if the field is missing."""
    return required(record, name, kind, where) if name in record else None


def records(document: Any, name: str, where: str) -> list[dict[str, Any]]:
    """Return a field that is a list of objects; raise `UserError`, naming `where`, if not."""
    entries = required(checked(document, dict, where), name, list, where)
    for number, entry in enumerate(entries):
        checked(entry, dict, f'entry {number} of "{name}" in {where}')
    return cast("list[dict[str, Any]]", entries)
