from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.rouge import longest_common_subsequence, rouge_l

words = st.lists(st.sampled_from("abc"), max_size=10)


def by_table(first: list[str], second: list[str]) -> int:
    row = [0] * (len(second) + 1)
    for word in first:
        before = row.copy()
        for index, other in enumerate(second):
            row[index + 1] = (
                before[index] + 1 if word == other else max(before[index + 1], row[index])
            )
    return row[-1]


@given(words, words)
def test_longest_common_subsequence_equals_the_table(first: list[str], second: list[str]) -> None:
    assert longest_common_subsequence(first, second) == by_table(first, second)


def test_longest_common_subsequence_of_ten_thousand_words() -> None:
    numbers = [str(index) for index in range(10_000)]
    assert longest_common_subsequence(numbers, numbers[1::2]) == 5_000


def test_worked_by_hand() -> None:
    scores = rouge_l(
        [["a", "dog", "runs", "fast"], ["x"]],
        [[["a", "brown", "dog", "runs"], ["dog", "fast"]], [["y"]]],
    )
    # Precision: "a dog runs" of four words. Recall: "dog fast" of two words.
    precision, recall = 3 / 4, 1.0
    expected = (1 + 1.44) * precision * recall / (recall + 1.44 * precision)
    assert scores.per_image.tolist() == pytest.approx([expected, 0.0])
    assert scores.score == pytest.approx(expected / 2)


def test_empty_captions() -> None:
    assert rouge_l([[]], [[["a"]]]).score == 0.0
    assert rouge_l([["a"]], [[[]]]).score == 0.0
    assert rouge_l([[]], [[[], ["a"]]]).score == 1.0


def by_hand(caption: list[str], references: list[list[str]]) -> float:
    common = [by_table(caption, reference) for reference in references]
    precision = max(common) / len(caption)
    recall = max(n / len(words) for n, words in zip(common, references, strict=True))
    below = recall + 1.44 * precision
    return 2.44 * precision * recall / below if below else 0.0


@pytest.mark.parametrize("length", [1, 2, 32, 63, 64, 65, 130])
def test_captions_around_the_width_of_a_machine_word(length: int) -> None:
    chance = random.Random(length)
    captions = [[chance.choice("abcd") for _ in range(n)] for n in (length, 3, length)]
    references = [
        [[chance.choice("abcd") for _ in range(n)] for n in (length, 64, 1, 90)] for _ in captions
    ]
    references[2].append(captions[2])
    expected = [by_hand(*pair) for pair in zip(captions, references, strict=True)]
    assert rouge_l(captions, references).per_image.tolist() == pytest.approx(expected, abs=1e-12)
    assert expected[2] == pytest.approx(1.0)
