"""Training photos changed by chance, so that a network learns what stays when they are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from PIL import Image, ImageEnhance, ImageOps

from captioner.errors import UserError

_ASPECT = 4 / 3


@dataclass(frozen=True)
class Augmentation:
    """How training photos are changed, each time they are read.

    crop: the least share of a photo's area that is cut out of it, in (0, 1]; 1 cuts nothing. The
        share is drawn evenly, the cut's width against its height between 3/4 and 4/3 of the
        photo's own (Szegedy et al. 2015, *Going Deeper with Convolutions*, section 6).
    mirror: whether left and right are exchanged in every other photo. Captions stay as they are,
        also those that name a side.
    colour: how far brightness, contrast and saturation are each multiplied away from 1 at most, in
        [0, 1).

    Raises `UserError` for values out of range.
    """

    crop: float = 1.0
    mirror: bool = False
    colour: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise UserError(f"augmentation crop {self.crop} is not above 0 and at most 1")
        if not 0 <= self.colour < 1:
            raise UserError(f"augmentation colour {self.colour} is not in [0, 1)")

    @property
    def changes(self) -> bool:
        """Whether a photo can come out other than it was."""
        return self != Augmentation()

    def __call__(self, photo: Image.Image, generator: torch.Generator) -> Image.Image:
        """The photo, in RGB, changed as `generator` draws; a cut is as large as it is."""
        drawn = torch.rand(8, generator=generator).tolist()
        if self.crop < 1:
            photo = photo.crop(self._box(photo.size, drawn[:4]))
        if self.mirror and drawn[4] < 0.5:
            photo = ImageOps.mirror(photo)
        if self.colour > 0:
            for enhance, number in zip(_COLOURS, drawn[5:], strict=True):
                photo = enhance(photo).enhance(1 + self.colour * (2 * number - 1))
        return photo

    def _box(self, size: tuple[int, int], drawn: list[float]) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of a cut, in pixels, from four numbers in [0, 1)."""
        share = self.crop + (1 - self.crop) * drawn[0]
        # A wide cut of nearly the whole photo would not fit, and is cut off.
        stretch = _ASPECT ** (drawn[1] - 0.5)
        width = max(1, min(size[0], round(size[0] * share**0.5 * stretch)))
        height = max(1, min(size[1], round(size[1] * share**0.5 / stretch)))
        left = round(drawn[2] * (size[0] - width))
        top = round(drawn[3] * (size[1] - height))
        return left, top, left + width, top + height


_COLOURS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
