from __future__ import annotations

import pytest

from captioner.data.numbers import number_in_words, number_pairs


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (85, "eighty five"),
        (100, "one hundred"),
        (117, "one hundred and seventeen"),
        (4007, "four thousand and seven"),
        (4700, "four thousand seven hundred"),
        (30_000, "thirty thousand"),
        (999_999, "nine hundred and ninety nine thousand nine hundred and ninety nine"),
    ],
)
def test_numbers_in_words(number: int, words: str) -> None:
    assert number_in_words(number) == words


def test_pairs() -> None:
    pairs = number_pairs(50, seed=3, largest=99)
    assert len({pair.source for pair in pairs}) == 50
    for pair in pairs:
        assert number_in_words(int(pair.target.replace(" ", ""))) == pair.source
    assert pairs == number_pairs(50, seed=3, largest=99)
    assert pairs != number_pairs(50, seed=4, largest=99)
