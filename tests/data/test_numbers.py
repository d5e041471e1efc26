from __future__ import annotations

import pytest

from captioner.data.numbers import number_in_words, number_pairs
from captioner.errors import UserError


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


def test_words_tell_numbers_apart() -> None:
    assert len({number_in_words(number) for number in range(12_000)}) == 12_000


def test_pairs() -> None:
    pairs = number_pairs(50, seed=3, smallest=10, largest=99)
    assert len({pair.source for pair in pairs}) == 50
    for pair in pairs:
        assert number_in_words(int(pair.target.replace(" ", ""))) == pair.source
    assert pairs == number_pairs(50, seed=3, smallest=10, largest=99)
    assert pairs != number_pairs(50, seed=4, smallest=10, largest=99)


@pytest.mark.parametrize(
    "arguments", [(0,), (11, 0, 0, 9), (1, 0, 5, 4), (1, 0, -1, 4), (1, 0, 0, 10**6)]
)
def test_what_cannot_be_drawn(arguments) -> None:
    with pytest.raises(UserError, match="numbers from"):
        number_pairs(*arguments)


def test_a_number_out_of_range() -> None:
    with pytest.raises(UserError, match="number 1000000"):
        number_in_words(1_000_000)
