"""Captions as lines: `path: sentence`, or in a format of the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from html import escape
from string import Formatter
from typing import TYPE_CHECKING
from urllib.parse import quote

from captioner.errors import refuse_errors

if TYPE_CHECKING:
    from captioner.caption.caption import Caption

_PLAIN = ("path", "caption", "rank", "score", "log_probability", "confidence", "doubt")
FIELDS = (*_PLAIN, "keywords", "img")
"""Of a format."""


class _Formatter(Formatter):
    def get_field(self, field_name: str, args: object, kwargs: Mapping[str, object]) -> object:
        return kwargs[field_name], field_name  # Neither attributes nor items of a value.

    def format_field(self, value: object, form: str) -> object:
        return "" if value is None else super().format_field(value, form)


def formatted(form: str, values: Mapping[str, object]) -> str:
    """A line in a format; a field without a value is empty."""
    with refuse_errors(f"--format {form} is not understood", f"the fields are {', '.join(FIELDS)}"):
        return _Formatter().vformat(form.replace("\\t", "\t").replace("\\n", "\n"), (), values)


def formatted_caption(form: str, path: str, caption: Caption, rank: int = 1) -> str:
    """A line for a caption of a photo in a format."""
    values = {name: getattr(caption, name, None) for name in FIELDS}
    values |= {"path": path, "caption": caption.text, "rank": rank}
    source = quote(os.fsencode(caption.name or path))
    values["img"] = f'<img src="{source}" alt="{escape(caption.text)}">'
    return formatted(form, {**values, "keywords": ", ".join(caption.keywords)})


def caption_lines(path: str, caption: Caption, is_alone: bool, form: str | None) -> Iterator[str]:
    """A line for each caption of a photo: in a format, or `path: sentence` with notes.

    is_alone: whether it is the only photo: a sentence has no path, and a single one no doubt. Words
    that were tested by erasing have a line each.
    """
    for rank, version in enumerate((caption, *caption.alternatives), start=1):
        if form:
            yield formatted_caption(form, path, version, rank)
            continue
        notes = [] if is_alone else [version.drawn_doubt]
        if caption.alternatives:
            scores = f"score {version.score:.2f}, log-probability {version.log_probability:.2f}"
            notes = [scores, version.drawn_doubt]
        if version.given:
            notes = [f"log-probability {version.log_probability:.2f}"]
        line = version.text if is_alone else f"{path}: {version.text}"
        noted = ", ".join(filter(None, notes))
        yield f"{line}  ({noted})" if noted else line
        for word in version.erased:
            whole, without, elsewhere = (f"{share:.0%}" for share in word.probabilities)
            about = f"{without} without what its map shows, {elsewhere} without as much elsewhere"
            yield f"  {version.words[word.position]}: {whole}; {about}"
