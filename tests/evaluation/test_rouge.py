from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.rouge import longest_common_subsequences, rouge_l

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


@given(words, st.lists(words, max_size=3))
def test_longest_common_subsequences_equal_the_table(
    first: list[str], others: list[list[str]]
) -> None:
    expected = [by_table(first, other) for other in others]
    assert longest_common_subsequences(first, others) == expected


def test_longest_common_subsequence_of_ten_thousand_words() -> None:
    numbers = [str(index) for index in range(10_000)]
    assert longest_common_subsequences(numbers, [numbers[1::2]]) == [5_000]


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
