"""The form that text takes before it is cut into words or pieces, and that it comes back in."""

from __future__ import annotations

import unicodedata

CASES = ("keep", "lower")
"""What may be done to capitals: nothing, or small letters for all."""

_SIGNS = str.maketrans({"\N{LOWER ONE EIGHTH BLOCK}": " ", "\N{HALFWIDTH BLACK SQUARE}": "\u25a0"})
"""Signs that stand for a space, and for the lack of one, in what text is cut into."""


def plain_text(text: str, case: str = "keep") -> str:
    """The text in Unicode's NFC, with one space wherever there is white space, and none around it.

    The sign that marks a space in subwords becomes a space, and the one that marks its lack in
    words a square; halves of surrogate pairs become the replacement character.
    case: `keep`, or `lower` for small letters.
    """
    sound = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if case == "lower":
        sound = sound.lower()
    return " ".join(unicodedata.normalize("NFC", sound).translate(_SIGNS).split())
