"""Reading what a request brings, in memory and within limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from captioner.render.typography import printable
from captioner.serve.limits import Limits, Place
from captioner.serve.problems import Problem, field_problem

FORM = "multipart/form-data"
JSON = "application/json"

_LONGEST_FIELD = 1024**2
_MOST_FIELDS = 64
_LONGEST_NAME = 100

Read = TypeVar("Read")


@dataclass(frozen=True)
class Upload:
    """A file that was sent. name: of the file, on one line, without folders."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Form:
    """What a form holds: its files of the field "photo", and the texts of its other fields."""

    photos: list[Upload]
    fields: dict[str, list[str]]

    def text(self, name: str) -> str | None:
        """The text of a field that may be there once.

        Raises `Problem` with status 422 where it is there several times.
        """
        texts = self.fields.get(name, [])
        if len(texts) > 1:
            raise field_problem(name, "is there more than once")
        return texts[0] if texts else None


class _MemoryParser(MultiPartParser):
    """The parser of the framework, which would put larger files into temporary ones on disk."""

    spool_max_size = 0  # No size is too large for memory; what comes in is limited before.


async def read_form(request: Request, place: Place, limits: Limits) -> Form:
    """Read a form of files and fields.

    Raises `Problem`: 400 for what is no such form, 408 when it comes too slowly, 413 when it is
    too large, 415 for another type of content, 422 for a file in another field than "photo" or too
    many of them, 503 where there is no room.
    """
    _check_type(request, FORM)
    # One file more than allowed is let through here, to be refused with a sentence of its own.
    parser = _MemoryParser(
        request.headers,
        _content(request, place, limits),
        max_files=limits.photos + 1,
        max_fields=_MOST_FIELDS,
        max_part_size=_LONGEST_FIELD,
    )
    try:
        parts = await _in_time(parser.parse(), place)
    except (MultiPartException, FormParserError, UnicodeError, ValueError) as error:
        reason = error.message if isinstance(error, MultiPartException) else "it is ill-formed"
        raise Problem(400, f"the form cannot be read: {reason.rstrip('.')}") from None
    photos: list[Upload] = []
    fields: dict[str, list[str]] = {}
    for name, value in parts.multi_items():
        if isinstance(value, str):
            if name == "photo":
                raise field_problem("photo", "is text, not a file")
            fields.setdefault(name, []).append(value)
            continue
        if name != "photo":
            raise field_problem(_short(name), "is a file, but files are given as 'photo'")
        photos.append(await _upload(value, len(photos) + 1))
    if not photos:
        raise field_problem("photo", "is missing")
    if len(photos) > limits.photos:
        raise field_problem("photo", f"is there more than {limits.photos} times, the limit")
    place.take_items(len(photos))
    return Form(photos, fields)


async def read_json(request: Request, place: Place, limits: Limits) -> dict[str, Any]:
    """Read a JSON object.

    Raises `Problem`: 400 for what is not one, 408 when it comes too slowly, 413 when it is too
    large, 415 for another type of content, 503 where there is no room.
    """
    _check_type(request, JSON)
    content = await _in_time(_all(_content(request, place, limits)), place)
    value = parse_json(content)
    if not isinstance(value, dict):
        raise Problem(400, "the content is not a JSON object, of fields with values")
    return value


def parse_json(text: str | bytes) -> Any:
    """A value from JSON. Raises `Problem` with status 400 for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # Not JSON; a number of 5,000 digits; too many brackets.
        raise Problem(400, "the content is not JSON that can be read") from None


def _check_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise Problem(415, f"the content must be {wanted}")


async def _content(request: Request, place: Place, limits: Limits) -> AsyncGenerator[bytes, None]:
    """The content as it comes, counted."""
    maximum = limits.upload_bytes
    large = Problem(413, f"the content is larger than {maximum:,} bytes, the limit")
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 18 or int(declared) > maximum:
        raise large
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > maximum:
            raise large
        place.take_bytes(len(chunk))
        yield chunk


async def _all(chunks: AsyncGenerator[bytes, None]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def _in_time(reading: Awaitable[Read], place: Place) -> Read:
    try:
        return await asyncio.wait_for(reading, place.seconds_left)
    except asyncio.TimeoutError:
        sentence = f"the content did not arrive within {place.seconds:g} seconds"
        raise Problem(408, sentence) from None
    except ClientDisconnect:
        raise Problem(400, "the content broke off") from None


async def _upload(file: UploadFile, number: int) -> Upload:
    name = (file.filename or "").replace("\\", "/").rpartition("/")[2]
    content = await file.read()
    await file.close()
    return Upload(_short(name) or f"photo {number}", content)


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
