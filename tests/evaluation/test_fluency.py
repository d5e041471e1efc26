"""Fluency of captions."""

from __future__ import annotations

import pytest

from captioner.evaluation.fluency import fluency
from captioner.text.ngrams import PeoplesNgrams


def test_fluency_by_hand() -> None:
    corpus = [text.split() for text in ("a dog runs", "a cat runs", "a dog runs away", "the dog")]
    people = PeoplesNgrams(corpus)
    captions = [text.split() for text in ("a dog runs", "a cat runs away", "dog a runs", "the dog")]
    references = [[corpus[0]], [corpus[3], ["the", "cat"]], [], []]
    scores = fluency(captions, references, people)
    # The second joins two captions by "cat runs away", which nobody wrote; the first and the last
    # are in the corpus, and "the dog" has nobody else to vouch for it.
    assert scores["fluent"] == 0.0 / 4 + 1 / 4 * (not people.unseen(captions[0]))
    assert scores["people_fluent"] == pytest.approx((not people.unseen(corpus[0])) / 3)
    assert scores["log_probability"] == pytest.approx(
        sum(map(people.log_probability, captions)) / 4
    )
    assert scores["misplaced_articles"] == 0
