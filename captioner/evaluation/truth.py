"""Whether captions name what is in the photo: by word, by kind of word, and by COCO's things.

Content words are compared by stem, so that "dogs" matches "dog": Porter's English stemmer in
Snowball (https://snowballstem.org), through nltk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from captioner.data.instances import Synonyms, read_synonyms
from captioner.evaluation.corpus import Corpus, FloatArray, Metric, Tokens
from captioner.text.kinds import KINDS, word_kinds
from captioner.text.languages import FUNCTION_WORDS, word_paragraphs


def word_precision(corpus: Corpus) -> Metric:
    """The share of each caption's content words that a reference of its image has.

    The mean over captions that have content words, 0 where none has, in which a word that occurs
    twice counts twice; and the share of all captions without a content word that a reference has.
    """
    shares = np.full(corpus.images, np.nan)  # (I,)
    without_match = np.zeros(corpus.images)
    for image, (caption, of_image) in enumerate(
        zip(corpus.captions, corpus.references, strict=True)
    ):
        known = set(content_stems(chain.from_iterable(of_image)))
        found = [stem in known for stem in content_stems(caption)]
        if found:
            shares[image] = sum(found) / len(found)
        without_match[image] = not any(found)
    has_content = ~np.isnan(shares)
    terms = np.stack((np.nan_to_num(shares), has_content, without_match), axis=1)  # (I, 3)

    def of_totals(totals: FloatArray) -> FloatArray:
        precise, with_content, none_true = np.moveaxis(totals, -1, 0)
        precision = precise / np.maximum(1, with_content)
        return np.stack((precision, none_true / corpus.images), axis=-1)

    return Metric(("word-precision", "captions with none"), shares, terms, of_totals)


def content_stems(words: Iterable[str]) -> list[str]:
    """The stems of the content words among tokenised words, in their order."""
    return [_stem(word) for word in words if word not in FUNCTION_WORDS]


@cache
def _stem(word: str) -> str:
    from nltk.stem.snowball import EnglishStemmer  # Imported here: it takes half a second.

    return str(EnglishStemmer().stem(word))


def true_words(words: Tokens, references: Iterable[Tokens]) -> list[bool | None]:
    """Whether each word of a tokenised caption is true; None of function words.

    True is a word that a reference says, by stem; or one that says the same: another name of one of
    COCO's things, a word of `alike.txt`, or "person" where there is anybody.
    """
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
        stems = set(content_stems(chain.from_iterable(of_image)))
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


def chair(
    captions: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    categories: Sequence[Collection[str]],
    synonyms: Synonyms,
    known: frozenset[str],
) -> dict[str, Any]:
    """CHAIR: how often tokenised captions name things that are not in the photo.

    Rohrbach et al. 2018, *Object Hallucination in Image Captioning*, section 2.1.

    categories: of each image, the annotated ones. In the image are these and those that its
        references name, by the words of `synonyms`.
    known: the categories that count, as `CocoInstances.known_categories`: one that could not be
        annotated would always count as hallucinated, and one without words is never named.

    By name, fractions of one with their counts; a thing counts once a caption:
    CHAIR-i: equation 1, the share of named things that are not there. CHAIR-s: equation 2, the
    share of captions that name such a thing. recall: the share of the things in the photos that
    captions name. None of no things. most_hallucinated: captions that hallucinate each category.
    dropped_categories: those of the word list that the annotations lack.
    """

    def named(words: Tokens) -> frozenset[str]:
        return known & {category for _, _, category in synonyms.mentions(words)}

    present = [
        (known & frozenset(annotated)).union(*map(named, of_image))
        for annotated, of_image in zip(categories, references, strict=True)
    ]
    mentioned = list(map(named, captions))
    absent = [each - there for each, there in zip(mentioned, present, strict=True)]
    mentions, wrong, things = (sum(map(len, each)) for each in (mentioned, absent, present))
    wrong_captions = sum(map(bool, absent))
    by_category = Counter(sorted(chain.from_iterable(absent)))
    return {
        "CHAIR-i": wrong / mentions if mentions else None,
        "CHAIR-s": wrong_captions / len(captions),
        "recall": (mentions - wrong) / things if things else None,
        "mentions": mentions,
        "hallucinated_mentions": wrong,
        "present": things,
        "hallucinating_captions": wrong_captions,
        "captions": len(captions),
        "most_hallucinated": dict(by_category.most_common()),
        "categories": len(known),
        "dropped_categories": [name for name in synonyms.categories if name not in known],
    }
