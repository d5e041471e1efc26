"""Fluency of captions."""

from __future__ import annotations

import pytest

from captioner.evaluation.fluency import fluency
from captioner.text.ngrams import PeoplesNgrams


def test_fluency_by_hand() -> None:
    lines = ("a dog runs", "a dog runs away", "the dog runs", "a cat sits", "the cat")
    people = PeoplesNgrams(text.split() for text in lines)
    captions = [
        text.split() for text in ("the dog runs away", "a cat runs", "a dog runs", "the cat")
    ]
    references = [[["a", "cat", "sits"]], [["a", "dog"], ["a", "dog", "runs", "away"]], [], []]
    scores = fluency(captions, references, people)
    # Nobody wrote "cat runs", and nobody else "the cat"; others vouch for the third.
    assert scores["fluent"] == 2 / 4
    assert scores["people_fluent"] == 0
    mean = sum(map(people.log_probability, captions)) / 4
    assert scores["log_probability"] == pytest.approx(mean)
    assert scores["misplaced_articles"] == scores["people_misplaced_articles"] == 0
