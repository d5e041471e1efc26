"""Decodes COCO's run-length masks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError

_PACKED = re.compile("(?:[P-o]{0,5}[0-O])*")
"""Numbers below 2^29 in COCO's string; pycocotools reads past the end of any other."""


def decode_run_lengths(counts: Any, height: int, width: int, where: str) -> NDArray[np.bool_]:
    """Decode run lengths, a list or COCO's string, to a mask (height, width).

    Raises `UserError`, naming `where`, if they are neither or do not add up to the mask's size.
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
        """The mask as one column; None if the runs are longer."""
        try:
            column: NDArray[np.uint8] = mask.decode({"size": [pixels, 1], "counts": counts})
        except ValueError:
            return None
        return column

    column = decode(height * width)
    # pycocotools leaves the pixels after the last run uninitialised.
    if column is None or decode(height * width - 1) is not None:
        raise UserError(
            f"{where} has runs that do not add up to the {height * width} pixels of its image"
        )
    return column.reshape(width, height).T.astype(np.bool_)
