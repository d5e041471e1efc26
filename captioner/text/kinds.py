"""The kinds of content words of English captions: what a caption says of a photo."""

from __future__ import annotations

from collections.abc import Sequence

from captioner.text.languages import FUNCTION_WORDS, is_noun, word_paragraphs

KINDS = ("thing", "person", "action", "quality", "place", "number")
"""Nouns of things and of people; verbs and postures; adjectives and colours; the nouns of
prepositions of place, and adverbs; numbers and quantities."""

_QUANTITIES, _PARTS, _COLOURS, _ADJECTIVES, _ADVERBS, _VERBS = word_paragraphs("no_nouns")
_PEOPLE, _GARMENTS, _MORE_VERBS, _MORE_ADJECTIVES, _PLACES, _DETERMINERS = word_paragraphs("kinds")
_OF_WORD = {
    **dict.fromkeys(_VERBS | _MORE_VERBS, "action"),
    **dict.fromkeys(_COLOURS | _ADJECTIVES | _MORE_ADJECTIVES, "quality"),
    **dict.fromkeys(_PARTS | _ADVERBS, "place"),
    **dict.fromkeys(_QUANTITIES, "number"),
    **dict.fromkeys(_PEOPLE, "person"),
}
# After these, "of" and "to" are prepositions of place: "in front of", "next to".
_ENDED = {"of": _PARTS | {"front", "inside", "outside", "edge", "corner"}, "to": {"next", "close"}}
_ARTICLES = ("a", "an", "the")


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
        if kind == "action" and position and words[position - 1] in _ARTICLES:
            kind = None  # "A boy goes down a slide".
        if kind is None and word.isdigit():
            kind = "number"
        elif kind is None and not is_noun(word) and word.endswith(("ing", "ed")):
            kind = "action"
        elif kind is None:
            is_place = place and word not in _GARMENTS  # "A man in a red shirt".
            kind = "place" if is_place else "thing"
        if kind in ("action", "person"):
            place = False
        kinds.append(kind)
    return kinds
