"""Splits captions into words as the COCO caption evaluation does."""

from __future__ import annotations

import re
from string import ascii_lowercase

from captioner.text.abbreviations import BEFORE_NUMBER, ENDING, SPLIT_WORDS, STATES, TITLES

PUNCTUATION = frozenset({"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})
"""Tokens that the evaluation removes. Its list also has -LRB- and other brackets, but is applied
after lower-casing and misses "-lrb-": brackets stay."""

_PLAIN = re.compile(r"[A-Za-z]+(?:(?:,? |-)[A-Za-z]+)* ?\.?[ \n]*")
_KEEP_PERIOD = {*ascii_lowercase, *f"{ENDING} {STATES} {TITLES} {BEFORE_NUMBER}".split()}
_SPLIT = frozenset(SPLIT_WORDS.split())


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

    The words are equal for the 222,000 different captions of COCO's, Flickr8k's and Multi30k's
    English, German and French files in the tests. Known to differ: telephone numbers with spaces,
    emoticons such as (^_^), "C++", names of files, HTML tags with attributes and entities other
    than `&amp;` and its like, and compounds with combining accents.
    """
    return [word for token in tokenize_unsplit(caption) for word in token.split()]


def tokenize_unsplit(caption: str) -> list[str]:
    """As `tokenize`, but a mixed number stays one word: "22 3/4" with a no-break space.

    That is the raw output of the evaluation's tokeniser. BLEU, CIDEr-D and METEOR split such a
    word, as `tokenize` does; ROUGE-L does not.
    """
    words = _plain_words(caption)
    return words_by_rules(caption) if words is None else words


def words_by_rules(caption: str) -> list[str]:
    """As `tokenize_unsplit`, with the rules for every caption, plain ones too."""
    # Imported here: the rules take time to compile, and captioning a photo does not need them.
    from captioner.text.penn_treebank import treebank_tokens

    return [token for token in treebank_tokens(caption) if token not in PUNCTUATION]


def _plain_words(caption: str) -> list[str] | None:
    """Plain words, commas and a period, as most captions are, are split in a tenth of the time."""
    if not _PLAIN.fullmatch(caption):
        return None
    words = caption.lower().rstrip(" \n.").replace(",", "").split()
    is_plain = words[-1] not in _KEEP_PERIOD and _SPLIT.isdisjoint(words)
    return words if is_plain else None
