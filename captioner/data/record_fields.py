"""Fields of JSON records, taken out with a clear refusal when they are not what they should be."""

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
    """Give `value` back if it is of the JSON type `kind`: str, int, list or dict.

    Raises `UserError`, which calls the value `where`, if it is not.
    """
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where} is not {_NAMES[kind]}")
    return value


def required(record: dict[str, Any], name: str, kind: type[Value], where: str) -> Value:
    """The field `name` of `record`, of the JSON type `kind`.

    Raises `UserError`, which calls the record `where`, when it is absent or of another type.
    """
    if name not in record:
        raise UserError(f'{where} has no field "{name}"')
    return checked(record[name], kind, f'field "{name}" of {where}')


def optional(record: dict[str, Any], name: str, kind: type[Value], where: str) -> Value | None:
    """As `required`, but None when the field is absent."""
    return required(record, name, kind, where) if name in record else None


def records(document: Any, name: str, where: str) -> list[dict[str, Any]]:
    """The list of objects that is the field `name` of the JSON object `document`.

    Raises `UserError`, which calls the document `where`, when it is anything else.
    """
    entries = required(checked(document, dict, where), name, list, where)
    for number, entry in enumerate(entries):
        checked(entry, dict, f'entry {number} of "{name}" in {where}')
    return cast("list[dict[str, Any]]", entries)
