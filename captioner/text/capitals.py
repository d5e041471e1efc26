"""Rewrites lines in upper case and titles as sentences, which models are trained on."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from captioner.text.plain_text import plain_text

Capitals = Literal["keep", "lines", "titles"]
"""Which lines `as_sentence` rewrites."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_MIN_CAPITALISED = 3
"""Fewest capitalised words of a title."""
_MIN_UPPER = 4
"""Letters of the shortest single word that is rewritten: "STOP", but not "BBC"."""
_CAPITALISED_SHARE = 0.6
"""Smallest share of capitalised words: "A Man Sits on a Wall Near the House"."""
_MAX_LOWER = 3
"""Letters of the longest lower-case words in a title: "of", "the"."""


class Sentence(NamedTuple):
    """A line as a sentence, and whether it was in upper case."""

    text: str
    capitals: bool


def as_sentence(text: str, capitals: str = "titles") -> Sentence:
    """Rewrite a line in upper case as a sentence; other lines are unchanged.

    capitals: one of `Capitals`. `keep`: no line is changed. `lines`: lines all in upper case, of
    two words or more or one word of at least four letters. `titles`: also lines such as "A Man Is
    Playing the Guitar", where at least three words and three fifths of all words are capitalised,
    among them all of more than three letters. Words with more upper-case letters ("NYC") stay.

    Names lose their capital. `titles` does not suit languages that capitalise nouns, as German.
    """
    if capitals == "keep":
        return Sentence(text, False)
    plain = plain_text(text)
    words = [match for match in _WORD.finditer(plain) if _has_case(match[0])]
    if plain.isupper() and (len(words) >= 2 or any(len(word[0]) >= _MIN_UPPER for word in words)):
        first = words[0].start() + 1
        return Sentence(plain[:first] + plain[first:].lower(), True)
    if capitals == "titles" and _is_title([match[0] for match in words]):
        first = words[0].end()
        return Sentence(plain[:first] + _WORD.sub(_lower_word, plain[first:]), False)
    return Sentence(text, False)


def _is_title(words: list[str]) -> bool:
    capitalised = [word for word in words if word[0].isupper()]
    return (
        len(capitalised) >= max(_MIN_CAPITALISED, _CAPITALISED_SHARE * len(words))
        and all(word[0].isupper() for word in words if len(word) > _MAX_LOWER)
        and any(word[1:].islower() for word in capitalised)
    )


def _lower_word(match: re.Match[str]) -> str:
    """Lower-case a word if all letters after its first are lower case."""
    word = match[0]
    return word.lower() if word[1:] == word[1:].lower() else word


def _has_case(word: str) -> bool:
    return word.lower() != word.upper()
