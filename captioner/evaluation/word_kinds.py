"""Which content words of captions are true, and the share of those of each kind.

True is a word that a reference says, by stem as of `word_precision`; or one that says the same:
another name of one of COCO's things, a word of `alike.txt`, or "person" where there is anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain

from captioner.data.instances import read_synonyms
from captioner.evaluation.corpus import Tokens
from captioner.evaluation.word_precision import content_stems
from captioner.text.kinds import KINDS, word_kinds
from captioner.text.languages import word_paragraphs


def true_words(words: Tokens, references: Iterable[Tokens]) -> list[bool | None]:
    """Whether each word of a tokenised caption is true; None of function words."""
    said = set(chain.from_iterable(chain.from_iterable(map(_meanings, references))))
    said |= {"anybody"} if "somebody" in said else set()
    return [bool(said & each - {"somebody"}) if each else None for each in _meanings(words)]


def words_by_kind(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> dict[str, dict[str, float | None]]:
    """The content words of captions by kind, and of `all`: their number and shares.

    said: the share that a reference says, by stem. true: those and words that say the same. None
    of no words.
    """
    counts = Counter[tuple[str, str]]()
    for words, of_image in zip(captions, references, strict=True):
        stems = set(content_stems([word for each in of_image for word in each]))
        truth, kinds = true_words(words, of_image), word_kinds(words)
        for word, is_true, kind in zip(words, truth, kinds, strict=True):
            for name in (kind, "all") if kind else ():
                is_said = not stems.isdisjoint(content_stems([word]))
                counts.update({(name, "words"): 1, (name, "said"): is_said})
                counts[name, "true"] += bool(is_true)
    shares: dict[str, dict[str, float | None]] = {}
    for name in (*KINDS, "all"):
        number = counts[name, "words"]
        found = {each: counts[name, each] / number if number else None for each in ("said", "true")}
        shares[name] = {"words": number, **found}
    return shares


def _meanings(words: Tokens) -> Iterator[set[str]]:
    """What each word says, by which it is compared; nothing of function words."""
    things = [""] * len(words)
    for first, last, category in _synonyms().mentions(words):
        things[first:last] = [category] * (last - first)
    for word, kind, thing in zip(words, word_kinds(words), things, strict=True):
        meanings = set(content_stems([word]))
        if word in _ALIKE:
            meanings.add(f"as {_ALIKE[word]}")
        if kind == "person":  # A man is no woman, but both are persons.
            meanings |= {"somebody", "anybody"} if word in _ANYBODY else {"somebody"}
        elif thing and meanings:
            meanings.add(f"a {thing}")
        yield meanings


_synonyms = cache(read_synonyms)
_GROUPS = word_paragraphs("alike")
_ALIKE = {word: number for number, group in enumerate(_GROUPS) for word in group}
_ANYBODY = next(group for group in _GROUPS if "person" in group)
