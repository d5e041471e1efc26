"""A toy language pair with reordering: English and French, whose adjectives follow the noun.

    the red Spanish car          la voiture espagnole rouge
     1   2     3     4            1     4        3      2

French articles and adjectives agree with their noun, so one English word has several translations,
and another word decides between them. All sentences are grammatical.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from captioner.data.parallel import SentencePair

_ARTICLES = {"a": ("un", "une"), "the": ("le", "la")}
_COLOURS = {
    "black": ("noir", "noire"),
    "blue": ("bleu", "bleue"),
    "green": ("vert", "verte"),
    "grey": ("gris", "grise"),
    "red": ("rouge", "rouge"),
    "white": ("blanc", "blanche"),
}
_NATIONALITIES = {
    "Chinese": ("chinois", "chinoise"),
    "French": ("français", "française"),
    "German": ("allemand", "allemande"),
    "Polish": ("polonais", "polonaise"),
    "Spanish": ("espagnol", "espagnole"),
}
_ANIMALS = {
    "cat": ("chat", "m"),
    "cow": ("vache", "f"),
    "dog": ("chien", "m"),
    "hen": ("poule", "f"),
    "horse": ("cheval", "m"),
    "mouse": ("souris", "f"),
}
_THINGS = {
    "boat": ("bateau", "m"),
    "book": ("livre", "m"),
    "car": ("voiture", "f"),
    "door": ("porte", "f"),
    "flower": ("fleur", "f"),
    "hat": ("chapeau", "m"),
    "house": ("maison", "f"),
    "table": ("table", "f"),
}
_VERBS = {
    "finds": "trouve",
    "follows": "suit",
    "likes": "aime",
    "sees": "voit",
    "watches": "regarde",
}

ADJECTIVES = frozenset({*_COLOURS, *_NATIONALITIES})
"""The English adjectives."""

NOUNS = frozenset({*_ANIMALS, *_THINGS})
"""The English nouns."""


def french_pairs(count: int, seed: int = 0, fewest: int = 1, most: int = 2) -> list[SentencePair]:
    """Different English sentences with their French translations.

    fewest, most: clauses of a sentence, uniform. A clause is an animal, a verb, and an animal or
        thing, with up to two adjectives each: 5 to 9 words.
    """
    generator = random.Random(seed)
    translations: dict[str, str] = {}
    while len(translations) < count:
        clauses = [_clause(generator) for _ in range(generator.randint(fewest, most))]
        english, french = zip(*clauses, strict=True)
        translations[" and ".join(english)] = " et ".join(french)
    return [
        SentencePair(english, french, line)
        for line, (english, french) in enumerate(translations.items(), start=1)
    ]


def french_order(english: Sequence[str]) -> list[int]:
    """The gold alignment: for each French word, the position of the English word it translates.

    english: the words of a sentence of `french_pairs`; each has one French word.
    """
    order: list[int] = []
    adjectives: list[int] = []
    for place, word in enumerate(english):
        if word in ADJECTIVES:
            adjectives.append(place)
        elif word in NOUNS:
            order += [place, *reversed(adjectives)]
            adjectives = []
        else:
            order.append(place)
    return order


def _clause(generator: random.Random) -> tuple[str, str]:
    """One clause in English and in French."""
    subject = _phrase(generator, _ANIMALS)
    verb = generator.choice(list(_VERBS))
    thing = _phrase(generator, _ANIMALS | _THINGS)
    return f"{subject[0]} {verb} {thing[0]}", f"{subject[1]} {_VERBS[verb]} {thing[1]}"


def _phrase(generator: random.Random, nouns: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """An article, a noun and its adjectives, in English and in French."""
    article = generator.choice(list(_ARTICLES))
    noun = generator.choice(list(nouns))
    french, gender = nouns[noun]
    form = 0 if gender == "m" else 1
    adjectives = [
        generator.choice(list(kind))
        for kind in (_COLOURS, _NATIONALITIES)
        if generator.random() < 0.5
    ]
    agreeing = [(_COLOURS | _NATIONALITIES)[each][form] for each in reversed(adjectives)]
    return (
        " ".join([article, *adjectives, noun]),
        " ".join([_ARTICLES[article][form], french, *agreeing]),
    )
