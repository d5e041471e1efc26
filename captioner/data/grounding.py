"""The parts of a photo that words name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from captioner.data.boxes import Box
from captioner.data.records import ImageId
from captioner.errors import UserError


@dataclass(frozen=True)
class Target:
    """The part of a picture that a word names: the union of its boxes and its mask.

    size: width and height in pixels of the annotated picture; the model may see a resized one.
    boxes: edges in pixels of that picture. mask: (height, width), True inside.

    Raises `UserError` for an empty picture, a mask of another size, and no boxes and no mask.
    """

    size: tuple[int, int]
    boxes: tuple[Box, ...] = ()
    mask: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        width, height = self.size
        if width < 1 or height < 1:
            raise UserError(f"a target's picture of {width}x{height} pixels has no area")
        if self.mask is not None and self.mask.shape != (height, width):
            raise UserError(
                f"a target's mask is of shape {self.mask.shape}, but its picture has "
                f"{height} rows and {width} columns"
            )
        if not self.boxes and self.mask is None:
            raise UserError("a target has neither boxes nor a mask")


class Grounding(Protocol):
    """Finds the targets of the words of captions; `str` names its source."""

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether the photo is annotated, even with nothing in it."""
        ...

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """The target of each of T words; None if the word names nothing annotated."""
        ...
