"""Normalises text: Unicode, white space and capitals."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Literal

_SIGNS = str.maketrans({"\N{LOWER ONE EIGHTH BLOCK}": " ", "\N{HALFWIDTH BLACK SQUARE}": "\u25a0"})
"""The signs that mark a space in subwords and its absence in words."""


def is_valid_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text: JSON may hold half a surrogate pair, which it cannot."""
    return not re.search("[\ud800-\udfff]", text)


def plain_text(text: str, case: str = "keep") -> str:
    """Text in Unicode's NFC with single spaces, none at the ends. case: only `lower` changes it.

    The subword space mark becomes a space, the word joiner a square, and lone surrogates the
    replacement character.
    """
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if case == "lower":
        valid = valid.lower()
    return " ".join(unicodedata.normalize("NFC", valid).translate(_SIGNS).split())


def unescape_entities(text: str) -> str:
    """Replace the entities of HTML, such as `&quot;`; one without its semicolon stays."""
    return re.sub(r"&#?\w+;", lambda entity: html.unescape(entity[0]), text)


Capitals = Literal["keep", "lines", "titles"]
"""Which lines `as_sentence` rewrites."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def as_sentence(text: str, capitals: str = "titles") -> tuple[str, bool]:
    """Rewrite a line in upper case as a sentence; returns it, and whether it was in upper case.

    capitals: `keep`: no line is changed. `lines`: those all in upper case, of two words or more or
    one of at least four letters ("STOP", but not "BBC"). `titles`: also those such as "A Man Is
    Playing the Guitar", where three words, three fifths of all and all of more than three letters
    are capitalised; words such as "NYC" stay. That does not suit German. Names lose their capital.
    """
    if capitals == "keep":
        return text, False
    plain = plain_text(text)
    words = [match for match in _WORD.finditer(plain) if match[0].lower() != match[0].upper()]
    if plain.isupper() and (len(words) >= 2 or any(len(word[0]) >= 4 for word in words)):
        first = words[0].start() + 1
        return plain[:first] + plain[first:].lower(), True
    if capitals == "titles" and _is_title([match[0] for match in words]):
        first = words[0].end()
        return plain[:first] + _WORD.sub(_lower_word, plain[first:]), False
    return text, False


def _is_title(words: list[str]) -> bool:
    capitalised = [word for word in words if word[0].isupper()]
    return (
        len(capitalised) >= max(3, 0.6 * len(words))
        and all(word[0].isupper() for word in words if len(word) > 3)
        and any(word[1:].islower() for word in capitalised)
    )


def _lower_word(match: re.Match[str]) -> str:
    """Lower-case a word if all letters after its first are lower case."""
    word = match[0]
    return word.lower() if word[1:] == word[1:].lower() else word
