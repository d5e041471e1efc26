"""The lines that `captioner caption` prints."""

from __future__ import annotations

import string
import sys
from typing import Any

from captioner.caption import Caption
from captioner.cli.report import on_a_line, report
from captioner.errors import UserError

FIELDS: dict[str, str | int | float] = {
    **{"path": "", "caption": "", "rank": 1},
    **{"score": 0.0, "log_probability": 0.0, "confidence": 0.0, "doubt": ""},
}
"""The fields of a line's format, with a value of their type."""


class CaptionLines:
    """Prints a line for each caption of a photo.

    is_alone: whether there is one photo, whose line is its sentence; otherwise `path: sentence`. A
        doubt of its only caption goes to standard error.
    line_format: replaces these lines, with `FIELDS` in braces, `\\t` and `\\n`. Fields without a
        value are empty.
    ends_with_null: end lines with NUL instead of a newline, and print paths as they are.

    Raises `UserError` for a format that is not understood.
    """

    def __init__(self, is_alone: bool, line_format: str | None, ends_with_null: bool) -> None:
        self._is_alone = is_alone
        self._format = line_format and _checked(line_format)
        self._ends_with_null = ends_with_null
        if ends_with_null and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")

    def print(self, path: str, caption: Caption) -> None:
        """Print the lines of a photo."""
        shown = path if self._ends_with_null else on_a_line(path)
        versions = (caption, *caption.alternatives)
        for rank, version in enumerate(versions, start=1):
            if self._format:
                line = self._format.format_map(_values(shown, version, rank))
            else:
                line = "" if self._is_alone else f"{shown}: "
                line += version.text
                notes = [version.doubt] if version.doubt else []
                if len(versions) > 1:
                    notes.insert(0, f"score {version.score:.2f}")
                    notes.insert(1, f"log-probability {version.log_probability:.2f}")
                if notes and self._is_alone and len(versions) == 1:
                    report(f"{path}: {version.doubt}")
                elif notes:
                    line += f"  ({', '.join(notes)})"
            print(line, end="\0" if self._ends_with_null else "\n", flush=True)


class _Absent:
    """A field without a value: empty in every format."""

    def __format__(self, form: str) -> str:
        return ""


def _values(path: str, caption: Caption, rank: int) -> dict[str, Any]:
    values = {name: getattr(caption, name, None) for name in FIELDS}
    values.update(path=path, caption=caption.text, rank=rank)
    return {name: _Absent() if value is None else value for name, value in values.items()}


def _checked(line_format: str) -> str:
    """The format with `\\t` and `\\n` replaced; raises `UserError` for one not understood."""
    shown = f"--format {line_format}"
    replaced = line_format.replace("\\t", "\t").replace("\\n", "\n")
    try:
        for _, field, form, conversion in string.Formatter().parse(replaced):
            if field is not None and field not in FIELDS:
                known = ", ".join(FIELDS)
                raise UserError(f"{shown} has an unknown field {{{field}}}; the fields are {known}")
            if conversion or (form and "{" in form):
                raise ValueError("a field takes a width or precision only, as {score:.2f}")
        replaced.format_map(FIELDS)
    except (ValueError, MemoryError) as error:
        raise UserError(f"{shown} is not understood: {error}") from None
    return replaced
