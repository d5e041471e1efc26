from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from captioner.evaluation.ngrams import count_ngrams

sentences_of_few_words = st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=6)


def brute_force(sentences: list[list[str]], order: int) -> dict[tuple[int, tuple[str, ...]], int]:
    return Counter(
        (index, tuple(tokens[start : start + order]))
        for index, tokens in enumerate(sentences)
        for start in range(len(tokens) - order + 1)
    )


@given(sentences_of_few_words)
def test_counts_equal_brute_force(sentences: list[list[str]]) -> None:
    for order, counts in enumerate(count_ngrams(sentences), start=1):
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


@given(sentences_of_few_words, st.integers(0, 2**31))
def test_look_up_equals_brute_force(sentences: list[list[str]], seed: int) -> None:
    random = np.random.default_rng(seed)
    for order, counts in enumerate(count_ngrams(sentences), start=1):
        if counts.number_of_ngrams == 0:
            continue
        sentence = random.integers(len(sentences), size=20)
        ngram = random.integers(counts.number_of_ngrams, size=20)
        words, expected = counts.words(sentences), brute_force(sentences, order)
        assert counts.count_of(sentence, ngram).tolist() == [
            expected.get((place, words[number]), 0)
            for place, number in zip(sentence.tolist(), ngram.tolist(), strict=True)
        ]
