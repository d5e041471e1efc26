"""Language tags, plain text, and the words of English captions by kind."""

import html
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from captioner.errors import CONTROLS, UserError

ENGLISH = "en"  # The language of captions that are not translated.


def language_tag(text: str, where: str) -> str:
    """A tag of RFC 5646 in its usual case, 2.1.1: "pt-BR". where: its name in messages."""
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*", text):
        raise UserError(f"{where} {text!r} is not a language tag such as de or pt-BR")
    parts = text.lower().split("-")
    cases = {2: str.upper, 4: str.title}  # Regions and scripts.
    return "-".join(parts[:1] + [cases.get(len(part), str)(part) for part in parts[1:]])


def is_english(tag: str) -> bool:
    """Whether a tag is of English, of any region."""
    return tag.partition("-")[0] == ENGLISH


def text_lines(name: str) -> list[str]:
    """The lines of a file of the folder `words`, whose first lines say what they are."""
    text = (Path(__file__).parent / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub("^#.*", "", text, flags=re.MULTILINE).strip().split("\n")


def word_paragraphs(name: str) -> list[frozenset[str]]:
    """The paragraphs of such a file, as sets of words."""
    paragraphs = "\n".join(text_lines(name)).split("\n\n")
    return [frozenset(paragraph.split()) for paragraph in paragraphs]


def word_list(name: str) -> frozenset[str]:
    """The words of all paragraphs of a file."""
    return frozenset().union(*word_paragraphs(name))


_FUNCTION_WORDS = {language: word_list(language) for language in ("en", "de", "fr")}
FUNCTION_WORDS = _FUNCTION_WORDS[ENGLISH]
"""English function words, tokenised as by `tokenize`; all others are content words."""

_NOUNS = word_list("nouns")
MODIFIERS = word_list("no_nouns")  # Adjectives, numbers and other frequent words.
_PEOPLE, _GARMENTS, _MORE_VERBS, _MORE_ADJECTIVES, _PLACES, _DETERMINERS = word_paragraphs("kinds")
_FALSE_NOUNS, _VAGUE = word_paragraphs("no_keywords")
_NO_NOUNS = MODIFIERS | _FALSE_NOUNS | _MORE_VERBS | _MORE_ADJECTIVES


def is_function_word(word: str, language: str) -> bool:
    """Whether a word of a caption is a function word; case and punctuation do not matter.

    language: a tag; only English, German and French have lists. Of a French word both sides of the
    apostrophe are checked: "d'une" is one, "l'eau" is not.
    """
    code = language.partition("-")[0]
    word = word.lower().rstrip(".,;:!?")
    parts = list(filter(None, re.split("['’]", word))) if code == "fr" else [word]
    return bool(parts) and _FUNCTION_WORDS.get(code, frozenset()).issuperset(parts)


def language_of(words: Sequence[str]) -> str:
    """The language with most function words in a caption: English in doubt, or German or French.

    Words for people, such as "man" and "son", count as English.
    """
    others = [word for word in words if word not in _PEOPLE]
    counts = {tag: sum(is_function_word(word, tag) for word in others) for tag in _FUNCTION_WORDS}
    counts[ENGLISH] += len(words) - len(others)
    return max(counts, key=counts.__getitem__)


_LATIN = "[a-zß-öø-ɏ]+(-[a-zß-öø-ɏ]+)*"
# Thai to Burmese, Khmer, kana and Chinese characters: no spaces between words.
UNSPACED = "\u0e00-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9d"
UNSPACED += "\U00020000-\U0003ffff"  # Rare Chinese ones.
# That, and a bracket as `tokenize` writes it.
_NO_WORD = re.compile(f"-[lr][rcs]b-|.*[{UNSPACED}]", re.IGNORECASE)


def content_words_of(words: Sequence[str], language: str) -> list[str]:
    """The words without punctuation and the article of "l'eau"; "" in place of all others.

    Others are function words, brackets, and what is written without spaces between words.
    """
    signs = r"^\W+|\W+$|^\w{1,2}['’](?=\w)"
    return [
        "" if is_function_word(word, language) or _NO_WORD.match(word) else re.sub(signs, "", word)
        for word in words
    ]


_PLURALS = [end.split("/") for end in word_list("plurals")]


def word_forms(word: str) -> set[str]:
    """An English word and what may be its plural; a possessive is two tokens, but for "mans"."""
    plurals = {word.removesuffix(end) + new for end, new in _PLURALS if word.endswith(end)}
    return {word, f"{word}s", *plurals}


def is_noun(word: str) -> bool:
    """Whether a word of a caption is likely a noun; rare verbs and adjectives count as nouns.

    Function words, `MODIFIERS`, verbs, adjectives, and unknown words in -ing, -ed and -ly do not,
    nor do brackets and words in other than Latin letters.
    """
    if word in FUNCTION_WORDS or word in _NO_NOUNS or not re.fullmatch(_LATIN, word):
        return False
    return len(word) > 1 and (word in _NOUNS or not word.endswith(("ing", "ed", "ly")))


WORD_KINDS = ("thing", "person", "action", "quality", "place", "number")
"""Of content words: nouns of things and of people; verbs and postures; adjectives and colours; the
nouns of prepositions of place, and adverbs; numbers and quantities."""

_QUANTITIES, _PARTS, _COLOURS, _ADJECTIVES, _ADVERBS, _VERBS = word_paragraphs("no_nouns")
_OF_WORD = {
    **dict.fromkeys(_VERBS | _MORE_VERBS, "action"),
    **dict.fromkeys(_COLOURS | _ADJECTIVES | _MORE_ADJECTIVES, "quality"),
    **dict.fromkeys(_PARTS | _ADVERBS, "place"),
    **dict.fromkeys(_QUANTITIES, "number"),
    **dict.fromkeys(_PEOPLE, "person"),
}
# After these, "of" and "to" are prepositions of place: "in front of", "next to".
_ENDED = {"of": _PARTS | {"front", "inside", "outside", "edge", "corner"}, "to": {"next", "close"}}
ARTICLES = ("a", "an", "the")

_CONSONANT_SOUND = r"eu|ewe|uni(?![dmn])|us([aebu]|\b)|ut[ei]|urin|uk|ufo|one(?!r)|(once|u|ups)\b"
_LETTERS = "[flmnrsx]|suv|rv|mp3|xbox|lcd|mri|nba|nfl|nhl|mlb"  # Said letter by letter.
_VOWEL_SOUND = rf"hour|hono|honest|heir|({_LETTERS}|(8\d*|1[18])(th|s)?)\b|8x"
VOWEL_SOUND = f"((?!{_CONSONANT_SOUND})[aeiou]|{_VOWEL_SOUND})"
"""A pattern of JavaScript, too: the beginning of a word before which "a" is "an"."""


def article_before(word: str) -> str:
    """ "a" or "an", by the sound of an English word: "an umbrella", "a unicycle"."""
    return "an" if re.match(VOWEL_SOUND, word) else "a"


def with_articles(words: Sequence[str]) -> list[str]:
    """The words of an English caption, with "a" and "an" by the word that follows, if one does."""
    corrected = [
        article_before(following) if word in ("a", "an") else word
        for word, following in pairwise(words)
    ]
    return [*corrected, *words[-1:]]


def word_kinds(words: Sequence[str]) -> list[str | None]:
    """The kind of each of a tokenised caption's words; None of function words."""
    kinds: list[str | None] = []
    place = False  # Whether a preposition of place governs the next noun.
    for position, word in enumerate(words):
        if word in FUNCTION_WORDS:
            ends = word in _ENDED and position > 0 and words[position - 1] in _ENDED[word]
            place = ends or word in _PLACES or (place and word in _DETERMINERS)
            kinds.append(None)
            continue
        kind = _OF_WORD.get(word)
        if kind == "action" and position and words[position - 1] in ARTICLES:
            kind = None  # "A boy goes down a slide".
        if kind is None:
            kind = "place" if place and word not in _GARMENTS else "thing"  # "In a red shirt".
            if word.isdigit():
                kind = "number"
            elif not is_noun(word) and word.endswith(("ing", "ed")):
                kind = "action"
        if kind in ("action", "person"):
            place = False
        kinds.append(kind)
    return kinds


def are_keywords(words: Sequence[str]) -> list[bool]:
    """Which of a tokenised caption's words are nouns that a person would search for.

    "Slide" is one after an article alone; "group", "top" and "photo" never are.
    """
    return [
        word not in _VAGUE and (is_noun(word) or (word in _VERBS and kind != "action"))
        for word, kind in zip(words, word_kinds(words), strict=True)
    ]


# The signs that mark a space in subwords and its absence in words.
_SIGNS = str.maketrans({"\N{LOWER ONE EIGHTH BLOCK}": " ", "\N{HALFWIDTH BLACK SQUARE}": "\u25a0"})


def is_valid_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text: JSON may hold half a surrogate pair, which it cannot."""
    return not re.search("[\ud800-\udfff]", text)


def plain_text(text: str, case: str = "keep") -> str:
    """Text in NFC with single spaces, none at the ends. case: only `lower` changes it.

    The subword space mark and control characters become spaces, the word joiner a square.
    """
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if case == "lower":
        valid = valid.lower()
    composed = unicodedata.normalize("NFC", valid)
    return " ".join(CONTROLS.sub(" ", composed).translate(_SIGNS).split())


def unescape_entities(text: str) -> str:
    """Replace the entities of HTML, such as `&quot;`; one without its semicolon stays."""
    return re.sub(r"&#?\w+;", lambda entity: html.unescape(entity[0]), text)


_OF_KEYBOARD = {"'": "‘’‚‛‹›ʼ′´`", '"': "“”„‟«»″", "-": "‐‑‒–−", " - ": "—―"}
_OF_KEYBOARD[""] = "\u00ad\u200b\u2060\ufeff"  # Soft hyphen, and spaces of no width.
_STRAIGHT = {ord(sign): plain for plain, signs in _OF_KEYBOARD.items() for sign in signs}
_STRAIGHT |= {ord(letters): unicodedata.normalize("NFKC", letters) for letters in "…ﬀﬁﬂﬃﬄﬅﬆ"}


def straighten(text: str) -> str:
    """Replace typographic quotation marks, dashes, ellipses and ligatures by those of a keyboard.

    Texts that translators learn from have hardly any: such a mark there is bytes, or rare.
    """
    return text.translate(_STRAIGHT)


Capitals = Literal["keep", "lines"]  # Which lines `as_sentence` rewrites.
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def as_sentence(text: str, capitals: Capitals = "lines") -> tuple[str, bool]:
    """Rewrite a line as a sentence, with a capital; also whether it was in upper case.

    capitals: `keep`: no line is changed. `lines`: those that begin with a small word ("a dog", but
    not "iPhone" or "2 dogs"), and those in upper case of two words or more or one of at least four
    letters ("STOP", but not "BBC"). Names in upper case lose their capital.
    """
    plain = plain_text(text)
    words = [match for match in _WORD.finditer(plain) if match[0].lower() != match[0].upper()]
    is_long = len(words) >= 2 or any(len(word[0]) >= 4 for word in words)
    is_upper = plain.isupper() and is_long
    is_small = is_long and words[0][0].islower() and not re.search(r"\w", plain[: words[0].start()])
    if capitals == "keep" or not (is_upper or is_small):
        return text, False
    first = words[0].start() + 1
    rest = plain[first:].lower() if is_upper else plain[first:]
    return plain[:first].upper() + rest, is_upper


_NEUTRAL = dict(pair.split() for pair in text_lines("neutral"))
_GENDERED = re.compile(rf"\b({'|'.join(_NEUTRAL)})\b", re.IGNORECASE)


def neutral(text: str) -> str:
    """An English text without genders: "a man and his dog" is "a person and their dog"."""

    def replaced(found: re.Match[str]) -> str:
        word = _NEUTRAL[found[0].lower()]
        return word.capitalize() if found[0][0].isupper() else word

    return _GENDERED.sub(replaced, text)


def with_full_stop(text: str) -> str:
    """A text with a capital and a full stop, unless it ends in a sign."""
    return text[:1].upper() + text[1:] + ("." if text[-1:].isalnum() else "")
