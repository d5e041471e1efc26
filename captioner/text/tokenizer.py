"""From the text of a caption to its words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from captioner.text.abbreviations import ABBREVIATIONS, SPLIT_WORDS

PUNCTUATION = frozenset({"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})
"""Tokens that the evaluation leaves out. Its list has -LRB- and other brackets as well, but comes
after the words were put in small letters, and does not find "-lrb-": brackets stay."""

_PLAIN = re.compile(
    r"[A-Za-z \n]*"
    r"(?:(?:[,.](?=[ \n]|\Z)|(?<=[A-Za-z])(?:-(?=[A-Za-z])|'s(?=[ \n]|\Z)))[A-Za-z \n]*)*"
)
"""Nothing but words of ASCII letters, white space, hyphens inside words, "'s" at their end, and
commas and periods after them."""

_NOT_PLAIN = frozenset(
    {f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyz"}
    | {f"{abbreviation}." for abbreviation in ABBREVIATIONS}
    | {*SPLIT_WORDS, *(f"{word}." for word in SPLIT_WORDS)}
)
"""What looks plain, but where a period belongs to the word, or the word is two."""

_BEFORE_PERIOD = frozenset(word.removesuffix(".") for word in _NOT_PLAIN)


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words without punctuation, as the COCO evaluation does.

    The words are those of `pycocoevalcap`'s tokeniser (Stanford's PTBTokenizer 3.4.1, whose rules
    are the Penn Treebank's, Marcus et al. 1993, then a list of punctuation to leave out), as its
    scorers take them from the line it writes: "A man's dog doesn't run." becomes
    `["a", "man", "'s", "dog", "does", "n't", "run"]`. What that program does to a caption is done
    here too, odd as it may be: brackets become words ("-lrb-"), emoji are dropped, a pound sign
    becomes "#", an accent that follows its letter stays apart from one that is part of it. Any text
    is accepted; one without a word gives an empty list.

    Two things are not in a caption but around it, and are settled so:

    - The program reads caption after caption, and a letter before a last period ("reads K.") keeps
      the period unless the next caption begins with one of some words ("A", "The", ...). Here it is
      as if such a caption followed. (And "no." keeps its period before a caption that begins with
      a number; not here.)
    - Line ends inside a caption are white space here. There, some of them make two captions of
      one, and every caption after it is scored as another image's.

    What is known to differ: which small form a capital Greek sigma gets beside a digit, a hyphen, a
    low line or a raised letter; and a dotted capital I in place of an I in "'til" and the like.
    """
    words = _plain_words(caption)
    return words_by_rules(caption) if words is None else words


def tokenize_all_unsplit(captions: Sequence[str]) -> list[list[str]]:
    """`tokenize_unsplit` of each caption, quicker for thousands of them.

    What white space, commas and a last period part, nearly all, is put in small letters and rid of
    these in one go.
    """
    plain = [
        number
        for number, caption in enumerate(captions)
        if _PLAIN.fullmatch(caption) and "\n" not in caption
    ]
    text = "\n".join([*(captions[number] for number in plain), ""]).lower()
    lines = text.replace(",", "").replace("'s", " 's").replace(".\n", "\n").split("\n")
    found: dict[int, list[str]] = {}
    for number, line in zip(plain, lines, strict=False):  # One more line: the end of the last.
        words = line.split()
        if (
            words
            and "." not in line
            and words[-1] not in _BEFORE_PERIOD
            and _NOT_PLAIN.isdisjoint(words)
        ):
            found[number] = words
    return [found.get(n) or tokenize_unsplit(caption) for n, caption in enumerate(captions)]


def words_by_rules(caption: str) -> list[str]:
    """What `tokenize` gives, always by all the rules: over ten times slower for a plain caption."""
    return [word for token in _kept_tokens(caption) for word in token.split()]


def tokenize_unsplit(caption: str) -> list[str]:
    """As `tokenize`, but a mixed number is one word: "22 3/4", with a no-break space in it.

    So it leaves the evaluation's tokeniser, telephone numbers likewise. Its BLEU, CIDEr-D and
    METEOR then split such a word, which makes the words of `tokenize`; its ROUGE-L does not.
    """
    words = _plain_words(caption)
    return _kept_tokens(caption) if words is None else words


def _kept_tokens(caption: str) -> list[str]:
    # Imported here: who captions a photo reads no text, and the rules take time to compile.
    from captioner.text.penn_treebank import tokens

    return [token for token in tokens(caption) if token not in PUNCTUATION]


def _plain_words(caption: str) -> list[str] | None:
    """The words of a caption that white space and punctuation part; None if it may have others."""
    if not _PLAIN.fullmatch(caption):
        return None
    text = caption.lower().replace(",", "").replace("'s", " 's")
    if "." in text:
        body = text.rstrip(" \n.")
        words = body.split()
        if "." in body or (words and f"{words[-1]}." in _NOT_PLAIN):
            words = text.split()  # Looked at with their periods, wherever these stand.
            return text.replace(".", "").split() if _NOT_PLAIN.isdisjoint(words) else None
    else:
        words = text.split()
    return words if _NOT_PLAIN.isdisjoint(words) else None
