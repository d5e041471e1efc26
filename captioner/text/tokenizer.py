"""Splits captions into words as the COCO caption evaluation does.

The rules were derived from the evaluation program's output, oddities included.
"""

import re
import unicodedata
from functools import cache
from pathlib import Path
from string import ascii_lowercase

from captioner.text.languages import word_list

ABBREVIATIONS = {name: word_list(name) for name in ("ending", "states", "titles", "before_number")}
"""By the name of their file, which says what they are."""

SPLIT_WORDS = frozenset(["cannot", "gonna", "gotta", "gimme", "lemme", "wanna"])
"""Words split after three letters: "can not"."""

PUNCTUATION = frozenset({"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"})
"""Tokens that the evaluation removes. Its list also has -LRB- and other brackets, but is applied
after lower-casing and misses "-lrb-": brackets stay."""

_PLAIN = re.compile(r"[A-Za-z]+(?:(?:,? |-)[A-Za-z]+)* ?\.?[ \n]*")
_KEEP_PERIOD = {*ascii_lowercase}.union(*ABBREVIATIONS.values())
ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&nbsp;": " "}
QUOTES = str.maketrans(
    {"‘": "`", "‛": "`", "‹": "`", "’": "'", "›": "'", "“": "``", "«": "``", "”": "''", "»": "''"}
)
SIGNS = {
    **{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"},
    **{"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"},
    **{"¢": "cents", "£": "#", "€": "$"},
}


@cache
def _token() -> re.Pattern[str]:
    """At each position the first rule that matches wins; lookaheads keep longer tokens whole.

    The rules, in `words/tokens.grammar`, match a text of `_class`es. Compiled on first use, since
    that takes time.
    """
    grammar = (Path(__file__).parent / "words" / "tokens.grammar").read_text(encoding="utf-8")
    definitions, _, rules = grammar.partition("\n\n")
    lists = {"split_words": SPLIT_WORDS, "sentence_starts": word_list("sentence_starts")}
    lists |= ABBREVIATIONS
    parts = {name: "|".join(map(re.escape, sorted(words))) for name, words in lists.items()}

    def filled(text: str) -> str:
        return re.sub(r"\{([a-z_]+)\}", lambda name: parts[name[1]], text)

    for definition in definitions.splitlines():
        name, _, pattern = definition.partition(" = ")
        parts[name] = filled(pattern)
    return re.compile(filled(rules), re.VERBOSE)


def tokenize(caption: str, lower: bool = True) -> list[str]:
    """Split a caption into lower-case words without punctuation, as the COCO evaluation does.

    lower: without it, the words keep their capitals.

    Gives the words of `pycocoevalcap`'s tokeniser (Stanford's PTBTokenizer 3.4.1, after Marcus et
    al. 1993, then a list of punctuation to remove): "A man's dog doesn't run." becomes `["a",
    "man", "'s", "dog", "does", "n't", "run"]`, brackets become words ("-lrb-"), emoji are dropped.
    Line ends are white space: there, some split a caption, which moves all scores after it.

    The words are equal for the 222,000 different captions of COCO's, Flickr8k's and Multi30k's
    English, German and French files in the tests. Known to differ: telephone numbers with spaces,
    emoticons such as (^_^), "C++", names of files, HTML tags with attributes, entities other than
    `&amp;` and its like, compounds with combining accents, and mixed numbers: "22 3/4" is two words
    here, and one to the evaluation's ROUGE-L alone.
    """
    if not caption:  # As the empty options of a search: the rules need not be compiled.
        return []
    if lower and _PLAIN.fullmatch(caption):  # As most captions: split in a tenth of the time.
        words = caption.lower().rstrip(" \n.").replace(",", "").split()
        if words[-1] not in _KEEP_PERIOD and SPLIT_WORDS.isdisjoint(words):
            return words
    text = caption.replace("\xad", "")  # Soft hyphens.
    for entity, sign in ENTITIES.items():
        text = text.replace(entity, sign)
    tokens: list[str] = []
    classes = text if text.isascii() else "".join(map(_class, text))
    for match in _token().finditer(classes):
        kind = match.lastgroup
        first, end = match.span(kind or 0)
        token = text[first:end].lower() if lower else text[first:end]
        if kind == "split":
            tokens.append(token[:3])
            token = token[3:]
        elif kind in ("clitic", "quotes"):
            token = token.translate(QUOTES)
        elif kind == "brackets":
            token = token.replace("(", "-lrb-").replace(")", "-rrb-")
        elif kind == "sign":
            token = SIGNS.get(token, token)
        if kind not in ("space", "punctuation") and token not in PUNCTUATION:
            tokens += token.split()
    return tokens


def _class(character: str) -> str:
    """ "é" for a letter or accent that is not ASCII, "0" for a digit, "\0" for what is dropped.

    The evaluation drops emoji and all else beyond the Basic Multilingual Plane.
    """
    if character.isascii():
        return character
    category = unicodedata.category(character)
    is_selector = "\ufe00" <= character <= "\ufe0f"  # A variation selector, as in emoji.
    if category[0] == "C" or category == "Me" or is_selector or character >= "\ufffd":
        return "\0"
    if category[0] in "LM":
        return "é"
    return "0" if category == "Nd" else character
