"""Where in a photo the thing is that a word names."""

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
    """The part of a picture that a word is about: everything in any of its boxes or in its mask.

    size: width and height, in pixels, of the picture that boxes and mask were drawn on. The photo
        shown to a model may be a larger or smaller copy, squashed even: only shares of the sides
        count.
    boxes: edges in pixels of that picture.
    mask: (height, width), True inside; None where there are boxes only.

    Raises `UserError` for a size below one pixel, a mask of another size, and neither boxes nor
    a mask.
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
    """Knows for the words of captions where in the photo their things are.

    As text (`str`) it is called by what it was read from, for sentences to name it.
    """

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether that photo is annotated at all, be it that nothing is in it."""
        ...

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """For each of the T words of a caption of a photo its target, or None.

        None for words that name nothing, and for things that are not annotated in that photo.
        An image that is not annotated at all gives T times None.
        """
        ...
