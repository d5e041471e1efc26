"""Lines all in capitals and titles, as sentences: what a model of sentences can read."""

from __future__ import annotations

import re
from typing import NamedTuple

from captioner.text.plain_text import plain_text

CAPITALS = ("keep", "lines", "titles")
"""What may be done to capitals that a line has for its form alone; see `as_sentence`."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LEAST = 3
"""Words with a capital that a title has at least."""
_LONG = 4
"""Letters of the shortest word that is a line in capitals by itself: "STOP", but not "BBC"."""
_SHARE = 0.6
"""Of a title's words, how many have a capital at least: "A Man Sits on a Wall Near the House"."""
_SMALL = 3
"""Letters of the longest words that a title may have in small letters: "of", "the"."""


class Sentence(NamedTuple):
    """A line as a sentence is written, and whether it was all in capitals."""

    text: str
    capitals: bool


def as_sentence(text: str, capitals: str = "titles") -> Sentence:
    """A line in capitals with small letters, but for its first one; any other as it is.

    capitals: one of `CAPITALS`. `keep`: no line is changed. `lines`: one whose letters are all
    capitals, in two words or more, or in one too long for an abbreviation. `titles`: also one with
    a capital at nearly every word, as in "A Man Is Playing the Guitar": at three of them at least,
    at three fifths, and at all of more than three letters. Words with more capitals, as in "NYC",
    stay as they are in a title.

    `titles` is not for languages that write nouns with capitals, as German does. Names lose their
    capitals.
    """
    if capitals == "keep":
        return Sentence(text, False)
    plain = plain_text(text)
    words = [match for match in _WORD.finditer(plain) if _has_case(match[0])]
    if plain.isupper() and (len(words) >= 2 or any(len(word[0]) >= _LONG for word in words)):
        first = words[0].start() + 1
        return Sentence(plain[:first] + plain[first:].lower(), True)
    if capitals == "titles" and _is_title([match[0] for match in words]):
        first = words[0].end()
        return Sentence(plain[:first] + _WORD.sub(_small, plain[first:]), False)
    return Sentence(text, False)


def _is_title(words: list[str]) -> bool:
    large = [word for word in words if word[0].isupper()]
    return (
        len(large) >= max(_LEAST, _SHARE * len(words))
        and all(word[0].isupper() for word in words if len(word) > _SMALL)
        and any(word[1:].islower() for word in large)
    )


def _small(match: re.Match[str]) -> str:
    """A word in small letters, if it has none but small ones behind its first."""
    word = match[0]
    return word.lower() if word[1:] == word[1:].lower() else word


def _has_case(word: str) -> bool:
    return word.lower() != word.upper()
