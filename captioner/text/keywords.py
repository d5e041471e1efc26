"""Keywords: the words of a caption by which a person would search for its photo."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal

from captioner.text.languages import (
    ENGLISH,
    are_keywords,
    content_words_of,
    is_english,
    word_forms,
    word_list,
)
from captioner.text.tokenizer import tokenize

Kind = Literal["none", "nouns", "all"]
"""Nouns are known in English alone; all content words also in other languages."""

LONGEST = 4  # Words of a compound.


@cache
def _compounds() -> frozenset[str]:
    """The compounds of `words/compounds.txt` and their plurals, joined by hyphens."""
    return frozenset().union(*map(word_forms, word_list("compounds")))


def keywords_of(
    words: Sequence[str], kind: Kind = "nouns", language: str = ENGLISH
) -> Iterator[tuple[str, int]]:
    """The keywords among a caption's words, as spelled, each with the place of its last word.

    A compound is one keyword: "hot dog", "teddy-bear". words: of English as by `tokenize`, in any
    case. language: their tag.
    """
    if kind == "none" or (kind == "nouns" and not is_english(language)):
        return
    lower = [word.lower() for word in words]
    is_chosen = are_keywords(lower) if kind == "nouns" else [True] * len(words)
    end = 0
    for place, word in enumerate(content_words_of(words, language)):
        if place < end:  # Within a compound.
            continue
        ends = range(min(len(words), place + LONGEST), place, -1)
        end = next((end for end in ends if "-".join(lower[place:end]) in _compounds()), place)
        if end > place:
            yield " ".join(words[place:end]), end - 1
        elif word and is_chosen[place]:
            yield word, place


def keywords_of_text(text: str, kind: Kind = "nouns", language: str = ENGLISH) -> tuple[str, ...]:
    """The keywords of a sentence, each once, with its first capitals."""
    words = tokenize(text, lower=False) if is_english(language) else text.split()
    found: dict[str, str] = {}
    for keyword, _ in keywords_of(words, kind, language):
        found.setdefault(keyword.lower(), keyword)
    return tuple(found.values())
