"""Language tags, function words, and the nouns of English captions."""

from __future__ import annotations

import re
from pathlib import Path

from captioner.errors import UserError

ENGLISH = "en"  # The language of captions that are not translated.


def language_tag(text: str, where: str) -> str:
    """A tag of RFC 5646 in its usual case (section 2.1.1): "pt-BR". where: its name in messages."""
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", text):
        raise UserError(f"{where} {text!r} is not a language tag such as de or pt-BR")
    language, *rest = text.lower().split("-")
    cases = {2: str.upper, 4: str.title}  # Regions and scripts.
    return "-".join([language, *(cases.get(len(part), str)(part) for part in rest)])


def is_english(tag: str) -> bool:
    """Whether a tag is of English, of any region."""
    return tag.partition("-")[0] == ENGLISH


def word_list(name: str) -> frozenset[str]:
    """The words of a file of the folder `words`, whose first lines say what they are."""
    text = (Path(__file__).parent / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return frozenset(re.sub("^#.*", "", text, flags=re.MULTILINE).split())


_FUNCTION_WORDS = {language: word_list(language) for language in ("en", "de", "fr")}

FUNCTION_WORDS = _FUNCTION_WORDS[ENGLISH]
"""English function words, tokenised as by `tokenize`; all others are content words."""

_NOUNS = word_list("nouns")
MODIFIERS = word_list("no_nouns")  # Adjectives, numbers and other frequent words.


def is_function_word(word: str, language: str) -> bool:
    """Whether a word of a caption names nothing, in any case and with punctuation after it.

    language: a tag; languages other than English, German and French have no such words here. A
    French word is one if it is so before and after its apostrophe: "d'une" is, "l'eau" is not.
    """
    code = language.partition("-")[0]
    word = word.lower().rstrip(".,;:!?")
    parts = [part for part in re.split("['’]", word) if part] if code == "fr" else [word]
    return bool(parts) and _FUNCTION_WORDS.get(code, frozenset()).issuperset(parts)


def is_noun(word: str) -> bool:
    """Whether a word of a caption is likely a noun; a rare verb or adjective passes for one.

    No nouns are function words, `MODIFIERS`, and unknown words in -ing, -ed and -ly.
    """
    if word in FUNCTION_WORDS or word in MODIFIERS or not word.replace("-", "").isalpha():
        return False
    return len(word) > 1 and (word in _NOUNS or not word.endswith(("ing", "ed", "ly")))
