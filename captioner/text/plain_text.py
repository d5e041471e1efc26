"""Normalises text before it is split into words or subwords."""

from __future__ import annotations

import unicodedata

CASES = ("keep", "lower")
"""Treatments of upper case."""

_SIGNS = str.maketrans({"\N{LOWER ONE EIGHTH BLOCK}": " ", "\N{HALFWIDTH BLACK SQUARE}": "\u25a0"})
"""The signs that mark a space in subwords and its absence in words."""


def is_valid_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text: JSON may hold half a surrogate pair, which it cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def plain_text(text: str, case: str = "keep") -> str:
    """Return text in Unicode's NFC with single spaces, and none at the ends.

    The subword space mark becomes a space, the word joiner a square, and lone surrogates the
    replacement character.
    case: `keep` or `lower`.
    """
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if case == "lower":
        valid = valid.lower()
    return " ".join(unicodedata.normalize("NFC", valid).translate(_SIGNS).split())
