"""How varied captions are, how fluent, and how often they name things that are not there.

Devlin et al. 2015, *Language Models for Image Captioning: The Quirks and What Works*, section 4
(captions that are unique, and captions seen in training); Shetty et al. 2017, *Speaking the Same
Language*, section 5 (the vocabulary that captions use).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any

from captioner.data.instances import Synonyms
from captioner.evaluation.corpus import Tokens
from captioner.text.ngrams import PeoplesNgrams


def text_diversity(
    captions: Sequence[Tokens], training: Iterable[Tokens] | None = None
) -> dict[str, float]:
    """How varied C tokenised captions are, by name; shares are fractions of one.

    captions: one or more, which may be empty.
    training: the tokenised captions that the model learned from.

    distinct_captions: different captions, word for word. seen_in_training: the share of captions
    that equal one of training, if given. vocabulary: different words. mean_length: in words.
    doubled_word: the share of captions with a word directly after itself ("a a"). repeated_2_words
    to repeated_4_words: with an n-gram that occurs twice in the caption.
    """
    sentences = [tuple(tokens) for tokens in captions]
    count = len(sentences)
    seen = {}
    if training is not None:
        known = set(map(tuple, training))
        seen["seen_in_training"] = sum(each in known for each in sentences) / count
    distinct = set(sentences)
    doubled = sum(any(one == other for one, other in pairwise(words)) for words in sentences)
    repeated, left = {"doubled_word": doubled / count}, sentences
    for n in (2, 3, 4):  # A sentence that repeats three words repeats two.
        left = [words for words in left if _repeats(words, n)]
        repeated[f"repeated_{n}_words"] = len(left) / count
    return {
        "distinct_captions": len(distinct),
        "distinct_share": len(distinct) / count,
        **seen,
        "vocabulary": len(set(chain.from_iterable(distinct))),
        "mean_length": sum(map(len, sentences)) / count,
        **repeated,
    }


def _repeats(words: tuple[str, ...], length: int) -> bool:
    """Whether an n-gram of this length occurs twice, which may overlap."""
    ngrams = list(zip(*(words[start:] for start in range(length)), strict=False))
    return len(set(ngrams)) < len(ngrams)


def fluency(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]], people: PeoplesNgrams
) -> dict[str, float]:
    """How fluent captions are, and people's captions of the same photos, by name.

    people: of captions that the model has not learned from.
    captions, references: tokenised, one or more. A reference that is itself in `people` does not
    vouch for its own n-grams, but the trigram model has seen it.

    fluent: the share of captions all of whose bigrams and trigrams people wrote. log_probability:
    the mean of `PeoplesNgrams.log_probability` over captions, in nats a word. misplaced_articles:
    the share of captions with "a" before a plural or a mass noun. people_fluent and so on: the same
    of the references, the ceiling.
    """

    def scores(sentences: Sequence[Tokens], leave_out: bool) -> dict[str, float]:
        fluent = sum(not people.unseen(words, leave_out) for words in sentences)
        misplaced = sum(bool(people.misplaced_articles(words)) for words in sentences)
        return {
            "fluent": fluent / len(sentences),
            "log_probability": sum(map(people.log_probability, sentences)) / len(sentences),
            "misplaced_articles": misplaced / len(sentences),
        }

    ceiling = scores(list(chain.from_iterable(references)), leave_out=True)
    own = scores(captions, leave_out=False)
    return own | {f"people_{name}": score for name, score in ceiling.items()}


def chair(
    captions: Sequence[Tokens],
    references: Sequence[Sequence[Tokens]],
    categories: Sequence[Collection[str]],
    synonyms: Synonyms,
    known: frozenset[str],
) -> dict[str, Any]:
    """CHAIR: how often tokenised captions name things that are not in their photos.

    Rohrbach et al. 2018, *Object Hallucination in Image Captioning*, section 2.1.

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
