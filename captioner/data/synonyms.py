"""Finds the object categories that the words of a caption name: "a surfer" is a "person"."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from captioner.errors import UserError
from captioner.files import read_text
from captioner.text.tokenizer import tokenize

COCO_SYNONYMS = Path(__file__).with_name("coco_synonyms.txt")
"""The word list of COCO's 80 categories; its first lines explain the format."""

# Plurals of word endings: "fireman" as "man".
_IRREGULAR_ENDINGS = (
    "calf calves, child children, foot feet, goose geese, half halves, knife knives, loaf loaves, "
    "man men, mouse mice, ox oxen, person people, scarf scarves, sheep sheep, shelf shelves, "
    "tooth teeth, wife wives"
)

Phrase = tuple[str, ...]

Mention = tuple[int, int, str]  # First word, last word (excluded), category.


class Synonyms:
    """A word list. phrases: the category that each names, or None."""

    def __init__(self, phrases: Mapping[Phrase, str | None]) -> None:
        self._phrases = dict(phrases)
        # Words of the longest phrase, by first word.
        self._longest = {each[0]: len(each) for each in sorted(phrases, key=len)}
        self.categories = tuple(filter(None, dict.fromkeys(phrases.values())))
        """In the order of the list."""

    def mentions(self, words: Sequence[str]) -> list[Mention]:
        """The mentions of a tokenized caption, from left to right; the longest phrase wins."""
        mentions: list[Mention] = []
        last = 0
        for first, word in enumerate(words):
            for length in range(self._longest.get(word, 0) * (first >= last), 0, -1):
                phrase = tuple(words[first : first + length])
                if phrase in self._phrases:
                    last = first + len(phrase)
                    category = self._phrases[phrase]
                    mentions += [] if category is None else [(first, last, category)]
                    break
        return mentions


def read_synonyms(path: str | os.PathLike[str] | None = None) -> Synonyms:
    """Read a word list; None: `COCO_SYNONYMS`.

    A line holds a category, a colon and comma-separated phrases: `dog: puppy, bull dog`. The
    category `-` marks phrases that name nothing: `-: dog house`. Phrases are singular: plurals
    ("dogs", "women") and joined or hyphenated forms ("bulldog", "bull-dog") are derived, unless
    listed; a form of two phrases names the first one's category.
    """
    file = COCO_SYNONYMS if path is None else Path(path)
    phrases: dict[Phrase, str | None] = {}
    categories: dict[Phrase, str] = {}
    for number, line in enumerate(read_text(file, "word list").splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        where = f"word list {file}, line {number}"
        name, colon, rest = content.partition(":")
        category = None if name.strip() == "-" else " ".join(name.lower().split())
        if category is not None:
            categories.setdefault(tuple(tokenize(category)), category)
        listed = [tuple(tokenize(text)) for text in rest.split(",")] if rest.strip() else []
        if not colon or () in listed or () in categories:
            raise UserError(f"{where} is not a category, a colon and phrases with commas between")
        for phrase in listed:
            if phrase in phrases:
                raise UserError(f"{where}: {' '.join(phrase)!r} is listed a second time")
            phrases[phrase] = category
    if not categories:
        raise UserError(f"word list {file} has no category")
    return Synonyms(_with_derived({**categories, **phrases}))


def _with_derived(listed: Mapping[Phrase, str | None]) -> dict[Phrase, str | None]:
    """The listed phrases and their derived forms."""
    phrases = dict(listed)
    for phrase, category in listed.items():
        several = [(*phrase[:-1], plural) for plural in plurals(phrase[-1])]
        for form in (phrase, *(form for form in several if form not in listed)):
            for derived in (form, ("".join(form),), ("-".join(form),)):
                phrases.setdefault(derived, category)
    return phrases


def plurals(word: str) -> list[str]:
    """The possible plurals of an English word, the regular one first.

    A word with an irregular ending gets both, "mans" and "men", since "human" makes "humans".
    """
    if word.endswith(("s", "x", "z", "ch", "sh")):
        results = [word + "es"]
    elif word.endswith("y") and word[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        results = [word[:-1] + "ies"]
    elif word.endswith("o"):
        results = [word + "s", word + "es"]  # pianos, potatoes
    else:
        results = [word + "s"]
    for singular, plural in map(str.split, _IRREGULAR_ENDINGS.split(", ")):
        if word.endswith(singular):
            results.append(word.removesuffix(singular) + plural)
    return results
