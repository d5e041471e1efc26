from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.ngrams import count_ngrams, sorting

sentences_of_few_words = st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=6)


def brute_force(sentences: list[list[str]], order: int) -> dict[tuple[int, str], int]:
    return Counter(
        (index, " ".join(tokens[start : start + order]))
        for index, tokens in enumerate(sentences)
        for start in range(len(tokens) - order + 1)
    )


@given(sentences_of_few_words)
def test_counts_equal_brute_force(sentences: list[list[str]]) -> None:
    for order, counts in enumerate(count_ngrams(sentences), start=1):
        texts = counts.texts(sentences)
        assert counts.order == order
        assert len(set(texts)) == len(counts.examples)
        found = {
            (sentence, texts[ngram]): count
            for sentence, ngram, count in zip(
                counts.sentence.tolist(), counts.ngram.tolist(), counts.count.tolist(), strict=True
            )
        }
        assert found == brute_force(sentences, order)


def test_numbers_too_large_to_carry_their_place_are_sorted_all_the_same() -> None:
    codes = np.array([2**62, 5, 2**62, 0, 5], dtype=np.int64)
    assert sorting(codes).tolist() == [3, 1, 4, 0, 2]
    assert sorting(codes % 7).tolist() == np.argsort(codes % 7, kind="stable").tolist()
