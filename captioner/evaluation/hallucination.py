"""CHAIR: how often captions name things that are not in the photo.

Rohrbach et al. 2018, *Object Hallucination in Image Captioning*, section 2.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from captioner.data.instances import Synonyms
from captioner.evaluation.corpus import Tokens


def chair(
    captions: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    categories: Sequence[Collection[str]],
    synonyms: Synonyms,
    known: frozenset[str],
) -> dict[str, Any]:
    """Compare the things that tokenised captions name with those in their photos.

    captions, references, categories: of each image a caption, captions by people and the annotated
        categories. In the image are these and those that its references name.
    synonyms: the words for each category.
    known: the categories that count, as `CocoInstances.known_categories`: one that could not be
        annotated would always count as hallucinated, and one without words is never named.

    By name, fractions of one with their counts; a thing counts once a caption:
    CHAIR-i: equation 1, the share of named things that are not there. CHAIR-s: equation 2, the
    share of captions that name such a thing. recall: the share of the things in the photos that
    captions name; captions that name little have a low CHAIR and a low recall. None of no things.
    most_hallucinated: captions that hallucinate each category, the most frequent first.
    dropped_categories: those of the word list that the annotations lack, in its order.
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
    by_category = Counter(sorted(name for names in absent for name in names))
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
