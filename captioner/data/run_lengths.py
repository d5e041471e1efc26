"""Masks from COCO's run lengths: pixels outside, then inside, and so on, down the columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError

_PACKED = re.compile("(?:[P-o]{0,5}[0-O])*")
"""COCO's string of numbers below 2^29; pycocotools reads past the end of any other string."""


def decode_run_lengths(counts: Any, height: int, width: int, where: str) -> NDArray[np.bool_]:
    """The mask (height, width) that run lengths describe.

    counts: a list of them, or COCO's string.
    Raises `UserError`, which calls the counts `where`, if they are neither or do not add up to the
    size of the mask.
    """
    # Imported here: few commands read masks.
    from pycocotools import mask

    if isinstance(counts, list) and all(type(length) is int for length in counts):
        if any(not 0 <= length < 2**31 for length in counts):
            raise UserError(f"{where} has a run length that is negative or too large")
        counts = mask.frPyObjects({"size": [height, width], "counts": counts}, height, width)
        counts = counts["counts"]
    elif not (isinstance(counts, str) and _PACKED.fullmatch(counts)):
        raise UserError(f"{where} has neither a list of whole numbers nor COCO's string as counts")

    def decode(pixels: int) -> NDArray[np.uint8] | None:
        """The mask in one column; None if the runs are longer."""
        try:
            column: NDArray[np.uint8] = mask.decode({"size": [pixels, 1], "counts": counts})
        except ValueError:
            return None
        return column

    column = decode(height * width)
    # pycocotools does not set the pixels behind the last run, so look whether there are any.
    if column is None or decode(height * width - 1) is not None:
        raise UserError(
            f"{where} has runs that do not add up to the {height * width} pixels of its image"
        )
    return column.reshape(width, height).T.astype(np.bool_)
