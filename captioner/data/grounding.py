"""The parts of a photo that words name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from captioner.data.records import ImageId

Box = tuple[float, float, float, float]
"""(left, top, right, bottom) edges in pixels: the first pixel alone is (0, 0, 1, 1)."""


@dataclass(frozen=True)
class Target:
    """The part of a picture that a word names: the union of its boxes and its mask, one or both.

    size: width and height in pixels of the annotated picture; the model may see a resized one.
    boxes: edges in pixels of that picture. mask: (height, width), True inside.
    """

    size: tuple[int, int]
    boxes: tuple[Box, ...] = ()
    mask: NDArray[np.bool_] | None = None


class Grounding(Protocol):
    """Finds the targets of the words of captions; `str` names its source."""

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether the photo is annotated, even with nothing in it."""

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """The target of each of T words; None if the word names nothing annotated."""
