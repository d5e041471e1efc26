from __future__ import annotations

import pytest

from captioner.decoding import LengthNormalisation


@pytest.mark.parametrize(
    ("alpha", "length", "divisor"),
    [
        (0.0, 1, 1.0),
        (0.0, 40, 1.0),
        (1.0, 1, 1.0),  # (5 + 1) / 6
        (1.0, 7, 2.0),
        (2.0, 13, 9.0),
        (0.5, 19, 2.0),
        (0.6, 10, 2.5**0.6),
    ],
)
def test_gnmt_formula_by_numbers(alpha, length, divisor) -> None:
    assert LengthNormalisation(alpha).score(-12.0, length) == pytest.approx(-12.0 / divisor)


def test_it_is_not_a_power_of_the_length() -> None:
    assert LengthNormalisation(1.0).score(-12.0, 4) == pytest.approx(-8.0)  # not -3


def test_it_lets_a_longer_hypothesis_win() -> None:
    short, long = (-2.0, 1), (-3.0, 7)
    none, some = LengthNormalisation(), LengthNormalisation(1.0)
    assert none.score(*short) > none.score(*long)
    assert some.score(*short) < some.score(*long)
