"""Fluency: whether captions are sentences as people write them, whatever the photo shows.

A caption is fluent when people wrote all its bigrams and trigrams. The corpus is people's captions
that the model has not learned from; people's own captions of the same photos are the ceiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from captioner.evaluation.corpus import Tokens
from captioner.text.ngrams import PeoplesNgrams


def fluency(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]], people: PeoplesNgrams
) -> dict[str, float]:
    """How fluent captions are, and people's captions of the same photos, by name.

    captions, references: tokenised, one or more. A reference that is itself in the corpus does not
    vouch for its own n-grams, but the trigram model has seen it.

    fluent: the share of captions all of whose bigrams and trigrams people wrote. log_probability:
    the mean of `PeoplesNgrams.log_probability` over captions, in nats a word. misplaced_articles:
    the share of captions with "a" before a plural or a mass noun. people_fluent and so on: the same
    of the references.
    """
    written = list(chain.from_iterable(references))
    ceiling = _scores(written, people, leave_out=True)
    return {
        **_scores(captions, people, leave_out=False),
        **{f"people_{name}": score for name, score in ceiling.items()},
    }


def _scores(
    sentences: Sequence[Tokens], people: PeoplesNgrams, leave_out: bool
) -> dict[str, float]:
    count = len(sentences)
    return {
        "fluent": sum(not people.unseen(words, leave_out) for words in sentences) / count,
        "log_probability": sum(map(people.log_probability, sentences)) / count,
        "misplaced_articles": sum(bool(people.misplaced_articles(w)) for w in sentences) / count,
    }
