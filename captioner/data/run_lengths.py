"""Decodes COCO's run-length masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError


def decode_run_lengths(counts: Any, height: int, width: int, where: str) -> NDArray[np.bool_]:
    """Decode run lengths, a list or COCO's string, to a mask (height, width).

    Runs go down the columns, outside and inside by turns. Raises `UserError`, naming `where`, if
    they are not whole numbers that add up to the mask's size.
    """
    try:
        runs = _unpack(counts) if isinstance(counts, str) else list(counts)
        if sum(runs) != height * width:
            raise ValueError
        return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"{where} has no runs that add up to the {height * width} pixels of its image"
        ) from None


def _unpack(text: str) -> list[int]:
    """The numbers in COCO's string: 5 bits a letter, low ones first, 32 where more follow.

    From the fourth number on they are differences from the last but one.
    """
    runs: list[int] = []
    value = shift = 0
    for byte in text.encode():
        digit = byte - ord("0")
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            if digit & 16:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return runs
