"""From the text of a caption to its words."""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Any

_TYPOGRAPHY = str.maketrans(
    {
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\N{EN DASH}": " -- ",
        "\N{EM DASH}": " -- ",
    }
)
"""Signs of typeset text, and the plain ones that the Penn Treebank rules know."""

_DROPPED_CHARACTERS = frozenset(".?!,:;-'`\"()[]{}<>")
"""A token made of these alone is punctuation. The COCO caption evaluation leaves out
'' ' `` ` -LRB- -RRB- -LCB- -RCB- . ? ! , : - -- ... ; and these cover them as nltk writes them."""

_DROPPED_NAMES = frozenset({"-lrb-", "-rrb-", "-lcb-", "-rcb-"})
"""The Penn Treebank's names of brackets, where a caption was tokenised before."""

_GLUED = re.compile(r"^[,:]+|(?:[,:]|\.\.)+$")
"""Punctuation that nltk leaves on a word when it is doubled: "red,,blue", "a table.."."""


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words without punctuation.

    Words are those of the Penn Treebank rules (Marcus et al. 1993, as in nltk's
    `TreebankWordTokenizer`): "A man's dog doesn't run." becomes
    `["a", "man", "'s", "dog", "does", "n't", "run"]`. The text is taken in Unicode's composed form
    (NFC), so that one letter has one spelling. The whole caption counts as one sentence: only
    its last period is split off. Any text is accepted; one without a word gives an empty list.
    """
    text = unicodedata.normalize("NFC", caption.lower()).translate(_TYPOGRAPHY)
    tokens: list[str] = _penn_treebank().tokenize(text)
    words = [_GLUED.sub("", token) for token in tokens]
    return [word for word in words if word and not _is_punctuation(word)]


def _is_punctuation(token: str) -> bool:
    return token in _DROPPED_NAMES or _DROPPED_CHARACTERS.issuperset(token)


@functools.cache
def _penn_treebank() -> Any:
    # Imported here: nltk takes a quarter of a second, and captioning a photo does not need it.
    from nltk.tokenize.treebank import TreebankWordTokenizer

    return TreebankWordTokenizer()
