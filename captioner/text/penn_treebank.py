"""The words of a caption by the Penn Treebank's rules, as the COCO caption evaluation reads them.

At every place of a caption, the rule whose match is longest takes it, what the rule looks at ahead
included; among equals, the first in `RULES`. Rules see the text through `stand_ins`: a letter that
is not ASCII is `LETTER` to them, and so on. They were found from what the evaluation's program
gives for many texts, not from the program: where they look odd, it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from captioner.text.abbreviations import (
    ENDING_ABBREVIATION,
    NUMBER_ABBREVIATION,
    SENTENCE_START,
    SPLIT_WORDS,
    TITLE_ABBREVIATION,
    any_case,
)
from captioner.text.characters import DIGIT, DROPPED, LETTER, MARK, stand_ins

# Parts of rules. An f-string of these is a rule's regular expression.

SPACE = r"[ \t\xa0\u2000-\u200a\u3000]"

ACCENTED = r"&[aeiouAEIOU](?i:acute|grave|uml);"
"""A letter as HTML writes it: "&eacute;"."""

LETTERS = f"A-Za-z{LETTER}"
DIGITS = f"0-9{DIGIT}"
ALPHANUMERIC = f"[{LETTERS}{DIGITS}]"

WORD = (
    rf"(?:[{LETTERS}{MARK}\xad]|{ACCENTED})"
    rf"(?:[{LETTERS}{MARK}{DIGITS}\xad]|{ACCENTED})*"
)
"""Letters, and digits after the first. (\\xad, here and below, is the soft hyphen.)"""

DOTTED = rf"{WORD}(?:[.!?]{WORD})+"
"""Words with a point and no space between: "example.com", "u.s", "really?yes"."""

APOSTROPHE = r"(?:['’\x92]|&apos;)"
SINGLE_QUOTE = r"(?:['’\x92`‘\x91‛]|&apos;)"

CLITIC = r"(?i:[msd]|re|ve|ll)"
"""What is split off after an apostrophe: "it 's", "they 're"; "n't" has its own rules."""

FRENCH = rf"(?:[dDoOlL]{SINGLE_QUOTE}{ALPHANUMERIC})?"
"""The beginning of "d'oeuvre", "l'eau" and "o'clock", and the letter after it."""

COMPOUND = (
    rf"{FRENCH}{ALPHANUMERIC}+"
    rf"(?:[-_\u058a\u2010\u2011]{FRENCH}{ALPHANUMERIC}+)*"
)
""""t-shirt", "3-year-old", "hors-d'oeuvre", "file_name", "1st"."""

COMPOUND_WITH_POINTS = (
    r"[A-Za-z0-9][A-Za-z0-9.,\xad]*"
    r"(?:-(?:(?:[A-Za-z]\.){2,}|[A-Za-z0-9\xad]+))+"
)
""""U.S.-based", "1,000-pound", "ex-u.s."; also "red,blue-green"."""

SLASHED_PART = r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"

CAPITALS_AND = r"[A-Z]+(?:(?:&(?i:amp);|[&+])[A-Z]+)+"
""""AT&T", "A+B"."""

NUMBER = rf"[-+]?(?:[{DIGITS}]*(?:[.:,\xad\u066b\u066c][{DIGITS}]+)+|[{DIGITS}]+)"

TAG_NAME = r"[A-Za-z][A-Za-z0-9_:.-]*"

TAG = (
    r"(?:<[!?][A-Za-z-][^>]*>"
    rf"|</{TAG_NAME} *>"
    rf"|<{TAG_NAME}(?: +{TAG_NAME}(?: *= *(?:'[^']*'|\"[^\"]*\"))?)* *(?:/ *)?>)"
)
"""<b>, </b>, <img src="x"/>, <!-- remark -->"""

ADDRESS = r'[^ \t\n\f\r"<>|(){}\xa0.]'
"""A character of an email address, but a point."""

WEB = r'[^ \t\n\f\r"<>|(){}]'
WEB_LAST = r'[^ \t\n\f\r"<>|(){}.!?,-]'
"""A character of a web address, and its last one."""

WWW = r'www\.(?:[^ \t\n\f\r"<>|(){}.!?,]+\.)+'
WWW_END = "[A-Za-z]{2,4}"
WEB_PATH = rf'/[^ \t\n\f\r"<>|()]+{WEB_LAST}'
"""The parts of a web address without http: it begins, or has a path, or both."""

FILE_TYPE = (
    "(?i:bat|bmp|c|cgi|class|cpp|dll|docx?|exe|gif|gz|h|html?|jar|java|jpe?g|mov|mp3|pdf|php|pl|png"
    "|ppt|ps|py|sql|tar|txt|wav|x|xml|zip)"
)


# How a token is written out. Most are as they stand.


def _as_it_stands(text: str) -> list[str]:
    return [text]


def _nothing(text: str) -> list[str]:
    return []


def _without_soft_hyphens(text: str) -> list[str]:
    return [text.replace("\xad", "")]


_CLITIC_QUOTES = {"’": "'", "\x92": "'", "&apos;": "'", "‘": "`", "\x91": "`", "‛": "`"}


def _clitic(text: str) -> list[str]:
    for quote, plain in _CLITIC_QUOTES.items():
        text = text.replace(quote, plain)
    return [text]


def _two_words(text: str) -> list[str]:
    return [text[:3], text[3:]]


def _round_brackets(text: str) -> list[str]:
    return [text.replace("(", "-LRB-").replace(")", "-RRB-")]


def _and(text: str) -> list[str]:
    return [re.sub("(?i)&amp;", "&", text)]


_QUOTES = str.maketrans(
    {"‘": "`", "\x91": "`", "‛": "`", "‹": "`", "’": "'", "\x92": "'", "›": "'"}
    | {"“": "``", "\x93": "``", "«": "``", "”": "''", "\x94": "''", "»": "''"}
)


def _quotes(text: str) -> list[str]:
    return [text.translate(_QUOTES)]


def _dash(text: str) -> list[str]:
    # More than four hyphens stay as they are; no sign of punctuation is that long.
    return [text if text == "-" or text.startswith("-----") else "--"]


_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&nbsp;": " "}


def _entity(text: str) -> list[str]:
    if text in ("&quot;", "&apos;"):
        return ["'"]
    return [_ENTITIES.get(text.lower(), text)]


_SIGNS = {
    **{"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"},
    **{"\u00bd": "1/2", "\u00bc": "1/4", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"},
    **{"\xa2": "cents", "\xa3": "#"},
    **dict.fromkeys("\x80\xa4\u20a0\u20ac", "$"),
    **dict.fromkeys('"\u058a\u2010\u2011\u066b\u066c', ""),
    "\xad": "-",
}
"""Signs that are written otherwise, or not at all."""


def _sign(text: str) -> list[str]:
    return [_SIGNS.get(text, text)]


@dataclass(frozen=True)
class Rule:
    """What one kind of token looks like.

    name: what the kind is called.
    pattern: the token and, if the rule must see what follows, that too, as the group `ahead`.
    needs: characters; a text without any of them has no such token. Empty if there are none.
    write: from the token to how it is written, in capitals or not.
    """

    name: str
    pattern: re.Pattern[str]
    needs: frozenset[str]
    write: Callable[[str], list[str]]


def _rule(
    name: str,
    pattern: str,
    needs: str = "",
    write: Callable[[str], list[str]] = _as_it_stands,
) -> Rule:
    return Rule(name, re.compile(pattern), frozenset(needs), write)


_DIGIT = f"0123456789{DIGIT}"
_QUOTE = "'’\x92`‘\x91‛&"

RULES = (
    _rule("white space", rf"{SPACE}|{DROPPED}", write=_nothing),
    _rule("tag", TAG, needs=">"),
    # 555 123 4567, (555) 123-4567, +44 20 7946 0958
    _rule(
        "telephone number",
        r"(?:\([0-9]{2,3}\)[ \xa0]?|\+{0,2}(?:[0-9]{2,4}[- \xa0]){1,2})"
        r"[0-9]{3,4}[- \xa0]?[0-9]{3,5}",
        needs=_DIGIT,
        write=_round_brackets,
    ),
    # :) ;-D >:( (^_^) =_=
    _rule(
        "emoticon",
        r"[<>]?[:;=][-o*']?[()@\[\\\]{|DdPpO](?![A-Za-z0-9])"
        r"|\((?:[\^x=~<>'-][_.]?[\^x=~<>'-]|[\^x=~<>']-[\^x=~<>'])\)|[\^x=~<>'-]_[\^x=~<>'-]",
        needs=":;=_(",
        write=_round_brackets,
    ),
    # HTML's signs by name or number; what is not known stays as it is.
    _rule(
        "entity",
        r"&(?:(?i:lt|gt|amp|nbsp|ht|tl|ur|lr|q[clr]|[co]dq|quot|apos)|#[0-9]+);",
        needs="&",
        write=_entity,
    ),
    _rule("capitals with &", CAPITALS_AND, needs="&+", write=_and),
    _rule("currency", r"[A-Z]+\$", needs="$"),  # US$
    _rule(
        "repeated sign",
        r"[!?]+|_+|\*+|(?:\\\*)+|#+|@+|<<|>>|[\xb2\xb3\xb9\u2070\u2074-\u2079]+|[\u2080-\u2089]+",
    ),
    _rule("two words in one", any_case(SPLIT_WORDS), write=_two_words),
    _rule(
        "email address",
        rf"(?:<|&(?i:lt);)?[A-Za-z0-9](?:{ADDRESS}|\.)*@"
        rf"(?:{ADDRESS}+\.)*{ADDRESS}+(?:>|&(?i:gt);)?",
        needs="@",
    ),
    _rule("programming language", r"[cCfF]#|[cC]\+\+", needs="#+"),
    # Abbreviations; what is ahead makes these stronger than a dotted word, as in "inc.b".
    _rule(
        "abbreviation that may end a sentence",
        rf"(?:{ENDING_ABBREVIATION})(?P<ahead>(?:[^{LETTERS}{MARK}]?.)?)",
        needs=".",
    ),
    _rule("title", TITLE_ABBREVIATION, needs="."),
    _rule(
        "file",
        rf"[{LETTERS}{MARK}{DIGITS}\xad]+(?:\.[{LETTERS}{MARK}{DIGITS}\xad]+)*\.{FILE_TYPE}"
        rf"(?={SPACE}|[.,!?]|\Z)",
        needs=".",
    ),
    # Words before what an apostrophe begins: do|n't, it|'s
    _rule(
        "word before n't",
        rf"[A-Za-z\xad]*[A-MO-Za-mo-z]\xad*(?P<ahead>[nN]{SINGLE_QUOTE}[tT])",
        needs=_QUOTE,
        write=_without_soft_hyphens,
    ),
    _rule(
        "word before a clitic",
        rf"(?:{DOTTED}|{WORD})(?P<ahead>{APOSTROPHE}{CLITIC})",
        needs=_QUOTE,
        write=_without_soft_hyphens,
    ),
    _rule("word", WORD, write=_without_soft_hyphens),
    _rule("n't", rf"[nN]{SINGLE_QUOTE}[tT]", needs=_QUOTE, write=_clitic),
    _rule(
        "clitic",
        rf"'{CLITIC}(?![A-Za-z])|(?:[’\x92]|&apos;){CLITIC}",
        needs=_QUOTE,
        write=_clitic,
    ),
    # O'Brien, Hawai'i, ne'er, o'o
    _rule(
        "name with an apostrophe",
        rf"[A-HJ-XZdlno]{SINGLE_QUOTE}[{LETTERS}]{{2,}}"
        rf"|[{LETTERS}]+[aeiouyAEIOUY]{SINGLE_QUOTE}[aeiouA-Z][{LETTERS}]*"
        rf"|[oO]{SINGLE_QUOTE}[oO]",
        needs=_QUOTE,
    ),
    _rule(
        "word with an apostrophe",
        rf"(?i:cap){APOSTROPHE}[nN]|(?i:c'mon|c'est|s'mores|li'l|nat'l|ev'ry|e'er)",
        needs=_QUOTE,
    ),
    _rule("beginning of a word", rf"[dljDLJ]{APOSTROPHE}|(?i:ol){APOSTROPHE}", needs=_QUOTE),
    _rule("y' of y'all", rf"[yY]{APOSTROPHE}(?P<ahead>[{LETTERS}])", needs=_QUOTE),
    _rule("'t of 'tis", r"'[tT](?P<ahead>(?i:is|was))", needs="'"),
    # 'em, 'til, '90s, rock 'n' roll
    _rule(
        "shortened word",
        rf"{APOSTROPHE}(?:(?i:em|till?|cause|[2-9]0s)|[nN]{APOSTROPHE}|[nN](?=[ \t\xa0]|\Z))"
        r"|(?:[’\x92]|&apos;)[nN]",
        needs=_QUOTE,
    ),
    _rule("year", rf"['’\x92][0-9]{{2}}(?P<ahead>{SPACE}|\Z)", needs="'’\x92"),
    _rule("quotation marks", r"''|[`‘’‚‛“”„‟‹›«»\x91-\x94]{1,2}", write=_quotes),
    _rule("web address", rf"(?i:https?)://{WEB}+{WEB_LAST}", needs=":"),
    _rule(
        "name or topic",
        rf"@[A-Za-z_][A-Za-z0-9_]*|#(?:[{LETTERS}{MARK}\xad]|{ACCENTED})+",
        needs="@#",
    ),
    _rule("number", NUMBER, needs=_DIGIT, write=_without_soft_hyphens),
    _rule(
        "fraction",
        rf"(?:[{DIGITS}]{{1,4}}[- \xa0])?[{DIGITS}]{{1,4}}(?:\\?/|\u2044)[{DIGITS}]{{1,4}}",
        needs="/\u2044",
    ),
    _rule(
        "abbreviation before a number",
        rf"{NUMBER_ABBREVIATION}(?P<ahead>{SPACE}?[{DIGITS}])",
        needs=_DIGIT,
    ),
    # Whatever it is, its period stays before a comma.
    _rule(
        "abbreviation before a comma",
        rf"(?:{WORD}|{COMPOUND}|{COMPOUND_WITH_POINTS}|{DOTTED}|{CAPITALS_AND})\."
        r"(?P<ahead>[,;:\u3001])",
        needs=".",
        write=_without_soft_hyphens,
    ),
    _rule("date", rf"[{DIGITS}]{{1,2}}[-/][{DIGITS}]{{1,2}}[-/][{DIGITS}]{{2,4}}", needs=_DIGIT),
    _rule(
        "letter at the end of a sentence",
        rf"[A-Za-z](?P<ahead>\.{SPACE}+(?:{SENTENCE_START}|{TAG})(?:{SPACE}|\Z)|\.{SPACE}*\Z)",
        needs=".",
    ),
    _rule("initials", r"[A-Za-z](?:\.[A-Za-z])*\.", needs="."),  # u.s.
    _rule("dotted word", DOTTED, needs=".!?", write=_without_soft_hyphens),
    _rule("www address with a path", rf"{WWW}?{WWW_END}{WEB_PATH}", needs="/"),
    _rule("www address", rf"{WWW}{WWW_END}", needs="."),
    # Capitals and digits are not among its characters: ",-_" is all from the comma to the low line.
    _rule(
        "web address without www",
        r"""(?:[^ \t\n\f\r"`'<>|!?(){}$,-_]+\.)+(?i:com|net|org|edu)"""
        rf"(?:{WEB_PATH})?",
        needs=".",
    ),
    _rule("words with a slash", rf"{SLASHED_PART}\\?/{SLASHED_PART}(?:\\?/{SLASHED_PART})?", "/"),
    _rule("compound with points", COMPOUND_WITH_POINTS, needs="-", write=_without_soft_hyphens),
    _rule("compound", COMPOUND),
    _rule("name of a bracket", r"-(?i:[lr][rcs]b)-", needs="-"),
    _rule("dash", r"-+|[–—―\x96\x97]|&(?i:md|mdash|ndash);", write=_dash),
    _rule("ellipsis", r"\.{3,}|\.(?:[ \xa0]\.){2,}|…", needs=".…", write=lambda _: ["..."]),
    _rule("sign", r"[^ ]", write=_sign),
)


LINE_ENDS = re.compile(r"[\n\r\v\f\x85\u2028\u2029]")

BARE_WORD = re.compile("([A-Za-z]+) +")
"""A word that no rule but "two words in one" could take otherwise, as a space follows it."""


def tokens(caption: str) -> list[str]:
    """The tokens of a caption in small letters, punctuation included; line ends are spaces.

    A token may have white space in it: the tag `<br />`, or the telephone number "555 123 4567".
    The evaluation writes a no-break space there, since a space stands between tokens.
    """
    text = LINE_ENDS.sub(" ", caption)
    shape = stand_ins(text)
    characters = set(shape)
    rules = [rule for rule in RULES if not rule.needs or not rule.needs.isdisjoint(characters)]
    found: list[str] = []
    position = 0
    while position < len(text):
        bare = BARE_WORD.match(shape, position)
        if bare and (word := bare[1].lower()) not in SPLIT_WORDS:
            found.append(word)
            position = bare.end()
            continue
        rule, end = _token_at(shape, position, rules)
        found += [
            token.lower().replace(" ", "\xa0") for token in rule.write(text[position:end]) if token
        ]
        position = end
    return found


def _token_at(shape: str, position: int, rules: Sequence[Rule]) -> tuple[Rule, int]:
    """The rule that takes the token at a position of a text, and the position where it ends."""
    furthest = position
    for rule in rules:
        match = rule.pattern.match(shape, position)
        if match and match.end() > furthest:
            furthest, best, found = match.end(), rule, match
    return best, found.start("ahead") if "ahead" in best.pattern.groupindex else furthest
