"""Splits captions into words as the COCO caption evaluation does."""

from __future__ import annotations

import re

from captioner.text.abbreviations import ABBREVIATIONS, SPLIT_WORDS

PUNCTUATION = frozenset({"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})
"""Tokens that the evaluation removes. Its list also has -LRB- and other brackets, but is applied
after lower-casing and misses "-lrb-": brackets stay."""

_PLAIN = re.compile(
    r"[A-Za-z \n]*"
    r"(?:(?:[,.](?=[ \n]|\Z)|(?<=[A-Za-z])(?:-(?=[A-Za-z])|'s(?=[ \n]|\Z)))[A-Za-z \n]*)*"
)
"""Plain text: ASCII words, white space, hyphens inside words, final "'s", commas and periods."""

_NOT_PLAIN = frozenset(
    {f"{letter}." for letter in "abcdefghijklmnopqrstuvwxyz"}
    | {f"{abbreviation}." for abbreviation in ABBREVIATIONS}
    | {*SPLIT_WORDS, *(f"{word}." for word in SPLIT_WORDS)}
)
"""Words that match `_PLAIN` but keep their period or are split in two."""


def tokenize(caption: str) -> list[str]:
    """Split a caption into lower-case words without punctuation, as the COCO evaluation does.

    Gives the words of `pycocoevalcap`'s tokeniser (Stanford's PTBTokenizer 3.4.1 with the rules of
    the Penn Treebank, Marcus et al. 1993, then a list of punctuation to remove): "A man's dog
    doesn't run." becomes `["a", "man", "'s", "dog", "does", "n't", "run"]`. Its oddities are kept:
    brackets become words ("-lrb-"), emoji are dropped, a pound sign becomes "#", combining accents
    are not composed. A text without words gives an empty list.

    The Java program reads all captions as one text, which makes two differences:

    - There, a letter before a final period ("reads K.") keeps the period unless the next caption
      begins with a word such as "A" or "The", and "no." keeps it if the next one begins with a
      number. Here every caption is read as if one with "A" followed.
    - There, some line ends inside a caption split it in two, and all captions after it are scored
      against the wrong image. Here line ends are white space.

    Known to differ: the lower case of a capital Greek sigma beside a digit, hyphen, underscore or
    superscript; and a dotted capital I for the I in words such as "'til".
    """
    words = _plain_words(caption)
    return words_by_rules(caption) if words is None else words


def words_by_rules(caption: str) -> list[str]:
    """As `tokenize`, but without the fast path: ten times slower for a plain caption."""
    return [word for token in _kept_tokens(caption) for word in token.split()]


def tokenize_unsplit(caption: str) -> list[str]:
    """As `tokenize`, but mixed and telephone numbers stay one word: "22 3/4" with a no-break space.

    That is the raw output of the evaluation's tokeniser. BLEU, CIDEr-D and METEOR split such a
    word, as `tokenize` does; ROUGE-L does not.
    """
    words = _plain_words(caption)
    return _kept_tokens(caption) if words is None else words


def _kept_tokens(caption: str) -> list[str]:
    # Imported here: the rules take time to compile, and captioning a photo does not need them.
    from captioner.text.penn_treebank import treebank_tokens

    return [token for token in treebank_tokens(caption) if token not in PUNCTUATION]


def _plain_words(caption: str) -> list[str] | None:
    """The words of a plain caption; None if it needs the rules."""
    if not _PLAIN.fullmatch(caption):
        return None
    text = caption.lower().replace(",", "").replace("'s", " 's")
    if "." in text:
        body = text.rstrip(" \n.")
        words = body.split()
        if "." in body or (words and f"{words[-1]}." in _NOT_PLAIN):
            words = text.split()  # With their periods, also inside the caption.
            return text.replace(".", "").split() if _NOT_PLAIN.isdisjoint(words) else None
    else:
        words = text.split()
    return words if _NOT_PLAIN.isdisjoint(words) else None
