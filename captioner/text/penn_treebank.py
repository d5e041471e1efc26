"""Tokenises captions by the Penn Treebank's rules, as the COCO caption evaluation does.

The rules were derived from the evaluation program's output, oddities included. Those that need what
captions do not have, such as programming languages and tags with attributes, are left out.
"""

from __future__ import annotations

import re
import unicodedata

from captioner.text.abbreviations import (
    BEFORE_NUMBER,
    ENDING,
    SENTENCE_STARTS,
    SPLIT_WORDS,
    STATES,
    TITLES,
)


def _any_of(words: str) -> str:
    return "|".join(words.split())


# Parts of the rules. They match a text in which "é" stands for every letter that is not ASCII.

LETTER = "[A-Za-zé]"
LETTER_OR_DIGIT = "[A-Za-zé0-9]"
WORD = f"{LETTER}{LETTER_OR_DIGIT}*"
DOTTED = rf"{WORD}(?:[.!?]{WORD})+"
APOSTROPHE = "['’]"
QUOTE = "['’`‘]"
CLITIC = f"{APOSTROPHE}(?i:[msd]|re|ve|ll)(?!{LETTER})"
FRENCH = f"(?:[dDoOlL]{QUOTE}{LETTER_OR_DIGIT})?"
COMPOUND = f"{FRENCH}{LETTER_OR_DIGIT}+(?:[-_‐‑]{FRENCH}{LETTER_OR_DIGIT}+)*"
SLASHED = "[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
ADDRESS = r'[^\s"<>|(){}]+'
ADDRESS_END = r'[^\s"<>|(){}.!?,-]'

TOKEN = re.compile(
    rf"""
    (?P<split> (?i:{_any_of(SPLIT_WORDS)})(?!{LETTER_OR_DIGIT}|[-_/]))
    | (?P<plain> [A-Za-z]+),?\  # Most words, with what follows: saves half of the time.
    | (?P<space> [\s\x00-\x1f\x7f])
    # Tags and addresses: <unk>, </b>; https://x.com/a?b=c; me@example.com; example.com/dog
    | </?[A-Za-z][A-Za-z0-9_:.-]*\ */?>
    | (?i:https?://|www\.){ADDRESS}{ADDRESS_END}
    | [A-Za-z0-9](?:{ADDRESS})?@(?:{ADDRESS})?[^\s"<>|(){{}}.]
    | (?:[a-z0-9]+\.)+(?:com|net|org|edu)/{ADDRESS}{ADDRESS_END}
    # :-) and (555) 123-4567; &#39;; AT&T, A+B; US$
    | (?P<brackets> [<>]?[:;=][-o*']?[()@\[\\\]{{|DdPpO](?![A-Za-z0-9])
        | \([0-9]{{2,3}}\)\ ?[0-9]{{3,4}}[-\ ]?[0-9]{{3,5}} )
    | &\#[0-9]+;
    | [A-Z]+(?:[&+][A-Z]+)+(?![a-zé0-9])
    | [A-Z]+\$
    # Periods: "dog., cat"; U.S.-based, 1,000-pound, non-U.S.; etc.; Mr.; no. 5; "K. The"; u.s.
    | (?:{COMPOUND}|{DOTTED})\.(?=[,;:、])
    | [A-Za-z0-9]+[.,][A-Za-z0-9.,]*(?:-[A-Za-z0-9]+)+
    | [A-Za-z0-9-]+-(?:[A-Za-z]\.){{2,}}
    | (?i: {_any_of(ENDING)} | (?-i:(?=[A-Z]))(?:{_any_of(STATES)}) )\.(?!{LETTER}{{2}})
    | (?i: {_any_of(TITLES)} )\.(?!{LETTER})
    | (?i: {_any_of(BEFORE_NUMBER)} )\.(?=\s?[0-9])
    | [A-Za-z](?=\.(?:\s*\Z|\s+(?=[A-Z])(?i:{_any_of(SENTENCE_STARTS)})(?:\s|\Z)))
    | [A-Za-z](?:\.[A-Za-z])*\.(?!{LETTER})
    # Apostrophes: do|n't; n't, 's; it|'s; Hawai'i; N'Sync; j'|ai, l'|a; y'|all; 't|is; '90s; '05
    | [A-Za-z]*[A-MO-Za-mo-z](?=[nN]{QUOTE}[tT])
    | (?P<clitic> [nN]{QUOTE}[tT](?!{LETTER}) | {CLITIC})
    | (?:{DOTTED}|{WORD})(?={CLITIC})
    | {LETTER}+[aeiouyAEIOUY]{QUOTE}[aeiouA-Z]{LETTER}*
    | [A-CE-HJKMNP-XZn]{QUOTE}{LETTER}{{2,}}
    | [jJ]{APOSTROPHE} | [dlDL]{APOSTROPHE}(?!{LETTER}{{2}}) | [yY]{APOSTROPHE}(?={LETTER})
    | '[tT](?=(?i:is|was))
    | (?i:c'mon|c'est|s'mores|li'l|nat'l|ev'ry|e'er|cap{APOSTROPHE}n|(?:dunkin|ol){APOSTROPHE})
    | {APOSTROPHE}(?:(?i:em|till?|cause|[2-9]0s)|[nN]{APOSTROPHE}|[nN](?=\s|\Z))
    | {APOSTROPHE}[0-9]{{2}}(?=\s|\Z)
    | (?P<quotes> '' | [`‘’‚‛“”„‟‹›«»]{{1,2}})
    # and/or, 24/7, 12/25/2003; 1 1/2; 1,000, 10:30, .5; example.com; 3-year-old, o'clock, 1st; -5
    | {SLASHED}/{SLASHED}(?:/{SLASHED})?
    | (?:[0-9]{{1,4}}[-\ \xa0])?[0-9]{{1,4}}[/⁄][0-9]{{1,4}}
    | [-+]?[0-9]*(?:[.:,][0-9]+)+
    | {DOTTED}
    | {COMPOUND}
    | [-+]?[0-9]+
    # Signs: @user, #tag; -LRB-
    | @[A-Za-z_][A-Za-z0-9_]* | \#{LETTER}+
    | -(?i:[lr][rcs]b)-
    | [!?]+ | _+ | \*+ | \#+ | @+ | -{{5,}} | << | >>
    | (?P<punctuation> ["…‐–—―] | -+ | \.{{3,}} | \.(?:\ \.){{2,}})
    | (?P<sign> .)
    """,
    re.VERBOSE,
)
"""At each position the first rule that matches wins; lookaheads keep longer tokens whole."""

ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&nbsp;": " "}

QUOTES = str.maketrans(
    {"‘": "`", "‛": "`", "‹": "`", "’": "'", "›": "'", "“": "``", "«": "``", "”": "''", "»": "''"}
)

SIGNS = {
    **{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"},
    **{"½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"},
    **{"¢": "cents", "£": "#", "€": "$"},
}


def treebank_tokens(caption: str) -> list[str]:
    """Return the lower-case tokens of a caption; dashes, ellipses and double quotes are dropped.

    White space inside a token (the mixed number "1 1/2") is a no-break space, as in the evaluation.
    """
    text = caption.replace("\xad", "")  # Soft hyphens.
    if "&" in text:
        for entity, sign in ENTITIES.items():
            text = text.replace(entity, sign)
    tokens: list[str] = []
    classes = text if text.isascii() else "".join(map(_class, text))
    for match in TOKEN.finditer(classes):
        kind = match.lastgroup
        if kind == "plain":
            tokens.append(match["plain"].lower())
            continue
        if kind in ("space", "punctuation"):
            continue
        token = text[match.start() : match.end()].lower()
        if kind == "split":
            tokens.append(token[:3])
            token = token[3:]
        elif kind in ("clitic", "quotes"):
            token = token.translate(QUOTES)
        elif kind == "brackets":
            token = token.replace("(", SIGNS["("]).replace(")", SIGNS[")"])
        elif kind == "sign":
            token = SIGNS.get(token, token)
        tokens.append(token.replace(" ", "\xa0"))
    return tokens


def _class(character: str) -> str:
    """ "é" for a letter or accent that is not ASCII, "0" for a digit, "\0" for what is dropped.

    The evaluation drops emoji and all else beyond the Basic Multilingual Plane.
    """
    if character.isascii():
        return character
    category = unicodedata.category(character)
    if category[0] == "C" or category == "Me" or not character < "\ufffd":
        return "\0"
    if "\ufe00" <= character <= "\ufe0f":  # Variation selectors, as of emoji.
        return "\0"
    return "é" if category[0] in "LM" else "0" if category == "Nd" else character
