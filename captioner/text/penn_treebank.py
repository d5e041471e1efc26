"""Tokenises captions by the Penn Treebank's rules, as the COCO caption evaluation does.

At every position the rule with the longest match wins, lookahead included; among equals, the first
in `RULES`. Rules match the text after `replace_by_class`, where a letter that is not ASCII is
`LETTER`, and so on. They were derived from the evaluation program's output, oddities included.
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
from captioner.text.characters import DIGIT, DROPPED, LETTER, MARK, replace_by_class

# Parts of the rules' regular expressions.

SPACE = r"[ \t\xa0\u2000-\u200a\u3000]"

ACCENTED = r"&[aeiouAEIOU](?i:acute|grave|uml);"
"""An accented letter as an HTML entity: "&eacute;"."""

LETTERS = f"A-Za-z{LETTER}"
DIGITS = f"0-9{DIGIT}"
ALPHANUMERIC = f"[{LETTERS}{DIGITS}]"

WORD = (
    rf"(?:[{LETTERS}{MARK}\xad]|{ACCENTED})"
    rf"(?:[{LETTERS}{MARK}{DIGITS}\xad]|{ACCENTED})*"
)
"""A letter, then letters and digits. (\\xad is the soft hyphen.)"""

DOTTED = rf"{WORD}(?:[.!?]{WORD})+"
"""Words joined by a point without a space: "example.com", "u.s", "really?yes"."""

APOSTROPHE = r"(?:['’\x92]|&apos;)"
SINGLE_QUOTE = r"(?:['’\x92`‘\x91‛]|&apos;)"

CLITIC = r"(?i:[msd]|re|ve|ll)"
"""Endings split off at an apostrophe: "it 's", "they 're"; "n't" has its own rules."""

FRENCH = rf"(?:[dDoOlL]{SINGLE_QUOTE}{ALPHANUMERIC})?"
"""The start of "d'oeuvre", "l'eau" and "o'clock", with the next letter."""

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
"""A character of an email address, except a point."""

WEB = r'[^ \t\n\f\r"<>|(){}]'
WEB_LAST = r'[^ \t\n\f\r"<>|(){}.!?,-]'
"""A character of a web address, and its last one."""

WWW = r'www\.(?:[^ \t\n\f\r"<>|(){}.!?,]+\.)+'
WWW_END = "[A-Za-z]{2,4}"
WEB_PATH = rf'/[^ \t\n\f\r"<>|()]+{WEB_LAST}'
"""Parts of a web address without http."""

FILE_TYPE = (
    "(?i:bat|bmp|c|cgi|class|cpp|dll|docx?|exe|gif|gz|h|html?|jar|java|jpe?g|mov|mp3|pdf|php|pl|png"
    "|ppt|ps|py|sql|tar|txt|wav|x|xml|zip)"
)


# Functions from a matched text to its tokens.


def _unchanged(text: str) -> list[str]:
    return [text]


def _dropped(text: str) -> list[str]:
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
    # Five hyphens or more stay, and are not removed as punctuation.
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
"""Signs that are replaced or dropped."""


def _sign(text: str) -> list[str]:
    return [_SIGNS.get(text, text)]


@dataclass(frozen=True)
class Rule:
    """The pattern of one kind of token.

    pattern: the token, and its lookahead as the group `ahead`, which counts for the longest match.
    needs: a text without any of these characters has no such token; empty for every text.
    write: from the matched text to its tokens, before lower-casing.
    """

    name: str
    pattern: re.Pattern[str]
    needs: frozenset[str]
    write: Callable[[str], list[str]]


def _rule(
    name: str,
    pattern: str,
    needs: str = "",
    write: Callable[[str], list[str]] = _unchanged,
) -> Rule:
    return Rule(name, re.compile(pattern), frozenset(needs), write)


_DIGIT = f"0123456789{DIGIT}"
_QUOTE = "'’\x92`‘\x91‛&"

RULES = (
    _rule("white space", rf"{SPACE}|{DROPPED}", write=_dropped),
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
    # HTML entities by name or number; unknown ones stay.
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
    # The lookahead lets abbreviations win over a dotted word, as in "inc.b".
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
    # Words before an apostrophe: do|n't, it|'s
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
    # Any word keeps its period before a comma.
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
    # The range ",-_" excludes upper-case letters and digits, as in the evaluation program.
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
"""A word before a space, which only the rule "two words in one" matches otherwise."""


def treebank_tokens(caption: str) -> list[str]:
    """Return the lower-case tokens of a caption, with punctuation; line ends are spaces.

    White space inside a token (the tag `<br />`, the telephone number "555 123 4567") is a no-break
    space, as in the evaluation.
    """
    text = LINE_ENDS.sub(" ", caption)
    classes = replace_by_class(text)
    characters = set(classes)
    rules = [rule for rule in RULES if not rule.needs or not rule.needs.isdisjoint(characters)]
    tokens: list[str] = []
    position = 0
    while position < len(text):
        bare = BARE_WORD.match(classes, position)
        if bare and (word := bare[1].lower()) not in SPLIT_WORDS:
            tokens.append(word)
            position = bare.end()
            continue
        rule, end = _token_at(classes, position, rules)
        tokens += [
            token.lower().replace(" ", "\xa0") for token in rule.write(text[position:end]) if token
        ]
        position = end
    return tokens


def _token_at(text: str, position: int, rules: Sequence[Rule]) -> tuple[Rule, int]:
    """The rule that wins at a position of a text, and the end of its token."""
    furthest = position
    for rule in rules:
        match = rule.pattern.match(text, position)
        if match and match.end() > furthest:
            furthest, best, found = match.end(), rule, match
    return best, found.start("ahead") if "ahead" in best.pattern.groupindex else furthest
