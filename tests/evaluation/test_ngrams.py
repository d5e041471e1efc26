from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.ngrams import (
    NgramCounts,
    count_ngrams,
    number_words,
    sentence_lengths,
    sorting,
)

sentences_of_few_words = st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=6)


def counted(sentences: list[list[str]]) -> list[NgramCounts]:
    return count_ngrams(number_words(sentences), sentence_lengths(sentences))


def brute_force(sentences: list[list[str]], order: int) -> dict[tuple[int, tuple[str, ...]], int]:
    return Counter(
        (index, tuple(tokens[start : start + order]))
        for index, tokens in enumerate(sentences)
        for start in range(len(tokens) - order + 1)
    )


@given(sentences_of_few_words)
def test_counts_equal_brute_force(sentences: list[list[str]]) -> None:
    for order, counts in enumerate(counted(sentences), start=1):
        words = counts.words(sentences)
        assert counts.order == order
        assert len(set(words)) == counts.number_of_ngrams
        found = {
            (sentence, words[ngram]): count
            for sentence, ngram, count in zip(
                counts.sentence.tolist(), counts.ngram.tolist(), counts.count.tolist(), strict=True
            )
        }
        assert found == brute_force(sentences, order)


def test_numbers_too_large_to_carry_their_place_are_sorted_all_the_same() -> None:
    codes = np.array([2**62, 5, 2**62, 0, 5], dtype=np.int64)
    assert sorting(codes).tolist() == [3, 1, 4, 0, 2]
    assert sorting(codes % 7).tolist() == np.argsort(codes % 7, kind="stable").tolist()
