"""Masks as run lengths: how many pixels lie outside, then inside, then outside, and so on.

The order is down the columns, from the left. COCO writes the lengths as a list, or packed into a
string (the format of `maskApi.c` in its tools). They are unpacked here because pycocotools fills
what too few of them leave open with whatever was in memory before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError

_LONGEST = 2**31


def run_lengths(counts: Any, where: str) -> list[int]:
    """The lengths, from a list of them or from COCO's string.

    A string has for each length one or more characters. A character minus 48 holds six bits: five
    of the number, lowest first, and 32 where more follow; 16 in the last one is the sign. From the
    fourth number on, what is written is the difference to the number two before.

    Raises `UserError`, which calls them `where`, when they are neither.
    """
    if isinstance(counts, str):
        lengths = _unpacked(counts, where)
    elif isinstance(counts, list) and all(type(length) is int for length in counts):
        lengths = counts
    else:
        raise UserError(f"{where} has neither a list of whole numbers nor a string as counts")
    if any(not 0 <= length < _LONGEST for length in lengths):
        raise UserError(f"{where} has a run length that is negative or too large")
    return lengths


def decode_mask(lengths: Sequence[int], size: Sequence[int], where: str) -> NDArray[np.bool_]:
    """The mask (height, width) that run lengths describe.

    size: height and width, in this order as COCO has them.

    Raises `UserError`, which calls the lengths `where`, when they do not add up to the size.
    """
    height, width = size
    if sum(lengths) != height * width:
        raise UserError(
            f"{where} has runs of {sum(lengths)} pixels, but its image has {height * width}"
        )
    inside = np.arange(len(lengths)) % 2 == 1
    return np.repeat(inside, lengths).reshape(width, height).T  # (height, width)


def _unpacked(text: str, where: str) -> list[int]:
    numbers: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 30:
            raise UserError(f"{where} has counts that are not COCO's run lengths")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        if len(numbers) > 2:
            value += numbers[-2]
        numbers.append(value)
        value = shift = 0
    if shift:
        raise UserError(f"{where} has counts that end in the middle of a number")
    return numbers
