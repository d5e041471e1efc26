"""A toy language pair that any model learns in seconds: numbers in words and in digits.

    four thousand and seven      4 0 0 7

The order is the same on both sides, but words and digits do not match one to one, so a model has
to attend.
"""

from __future__ import annotations

import random

from captioner.data.parallel import SentencePair

_BELOW_TEN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_BELOW_TWENTY = (*_BELOW_TEN, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

LARGEST = 999_999


def number_in_words(number: int) -> str:
    """A number, 0 to `LARGEST`, in English: "one hundred and four thousand and twelve"."""
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _below_thousand(rest)
    words = f"{_below_thousand(thousands)} thousand"
    if not rest:
        return words
    link = " and " if rest < 100 else " "
    return words + link + _below_thousand(rest)


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    parts = [f"{_BELOW_TWENTY[hundreds]} hundred"] if hundreds else []
    if rest or not hundreds:
        tens, ones = divmod(rest, 10)
        words = _BELOW_TWENTY[rest] if rest < 20 else _TENS[tens - 2]
        parts.append(f"{words} {_BELOW_TWENTY[ones]}" if rest >= 20 and ones else words)
    return " and ".join(parts)


def number_pairs(count: int, seed: int = 0, largest: int = 9_999) -> list[SentencePair]:
    """Different random numbers from 0 on, in words and in digits with spaces between them."""
    numbers = random.Random(seed).sample(range(largest + 1), count)
    return [
        SentencePair(number_in_words(number), " ".join(str(number)), line)
        for line, number in enumerate(numbers, start=1)
    ]
