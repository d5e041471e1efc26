from __future__ import annotations

import pytest

from captioner.evaluation.wording import text_diversity

CAPTIONS = [
    ["a", "dog", "on", "a", "a", "mat"],  # "a" directly after itself
    ["a", "dog", "on", "a", "mat"],
    ["a", "dog", "on", "a", "mat"],
    ["a", "cat", "and", "a", "cat"],  # "a cat" twice
]


@pytest.mark.parametrize(
    ("caption", "repeated"),
    [
        ("a b a", (0, 0, 0, 0)),
        ("a a", (1, 0, 0, 0)),
        ("a a a", (1, 1, 0, 0)),  # "a a" from the first word and from the second
        ("a a a a", (1, 1, 1, 0)),
        ("a b c a b", (0, 1, 0, 0)),
        ("a b c a b c", (0, 1, 1, 0)),
        ("a b c d x a b c d", (0, 1, 1, 1)),
        ("a b c d e f g", (0, 0, 0, 0)),
        ("", (0, 0, 0, 0)),
    ],
)
def test_what_counts_as_a_repetition(caption: str, repeated: tuple[int, ...]) -> None:
    found = text_diversity([caption.split()])
    assert tuple(found[f"repeated-{n}"] for n in (1, 2, 3, 4)) == repeated


def test_captions_of_training_are_counted_word_for_word() -> None:
    training = (words for words in [["a", "dog", "on", "a", "mat"], ["a", "cat"], []])
    assert text_diversity(CAPTIONS, training)["seen_in_training"] == 2 / 4
    assert text_diversity(CAPTIONS, [])["seen_in_training"] == 0


def test_worked_figures() -> None:
    assert text_diversity(CAPTIONS)["seen_in_training"] is None
    assert text_diversity(CAPTIONS, CAPTIONS[:1]) == {
        "distinct_captions": 3,
        "distinct_share": 0.75,
        "seen_in_training": 0.25,
        "vocabulary": 6,  # a dog on mat cat and
        "mean_length": 21 / 4,
        "repeated-1": 0.25,
        "repeated-2": 0.25,
        "repeated-3": 0,
        "repeated-4": 0,
    }
