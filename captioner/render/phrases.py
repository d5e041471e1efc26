"""The words on drawings and pages beside the caption, in the languages of captions."""

from __future__ import annotations

import json
from dataclasses import dataclass

from captioner.render.web_page import static_file
from captioner.text.languages import ENGLISH


@dataclass(frozen=True)
class Phrases:
    """The words of one language, with its tag; `usage` is HTML, the others plain text.

    sure: in three degrees, from the least. Captions in other languages are translations; their
    probabilities are the translator's.
    """

    language: str
    not_sure: str
    sure: list[str]
    confidence: str
    legend: str
    title: str
    usage: str
    strength: str
    search: str
    no_script: str
    play: str
    stop: str
    copy: str
    copied: str
    edit: str
    discard: str
    save: str


def phrases(language: str) -> Phrases:
    """The words for a language's tag, such as "de" or "de-CH"; English for others."""
    texts, code = json.loads(static_file("phrases.json")), language.partition("-")[0]
    code = code if code in texts else ENGLISH
    return Phrases(code, **texts[code])
