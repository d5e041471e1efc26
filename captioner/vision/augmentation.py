"""Random augmentation of training photos."""

from __future__ import annotations

import torch
from PIL import Image, ImageEnhance, ImageOps
from pydantic import Field

from captioner.schema import Config

_ASPECT = 4 / 3


class Augmentation(Config):
    """Random changes to a training photo each time it is read."""

    crop: float = Field(
        1.0,
        ge=0.01,
        le=1,
        description="smallest share of a photo's area that is cut out; 1 cuts nothing. The share "
        "is uniform, the cut's aspect ratio 3/4 to 4/3 of the photo's (Szegedy et al. 2015, "
        "section 6)",
    )
    mirror: bool = Field(
        False, description="mirror every other photo; captions that name a side stay as they are"
    )
    colour: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="farthest that brightness, contrast and saturation are multiplied away from 1",
    )

    @property
    def changes(self) -> bool:
        """Whether any augmentation is on."""
        return self != Augmentation()

    def __call__(self, photo: Image.Image, generator: torch.Generator) -> Image.Image:
        """Augment an RGB photo; a crop is not scaled back."""
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
        """Left, top, right and bottom of a crop, in pixels, from four numbers in [0, 1)."""
        share = self.crop + (1 - self.crop) * drawn[0]
        # A wide crop of nearly the whole photo is clipped to it.
        stretch = _ASPECT ** (drawn[1] - 0.5)
        width = max(1, min(size[0], round(size[0] * share**0.5 * stretch)))
        height = max(1, min(size[1], round(size[1] * share**0.5 / stretch)))
        left = round(drawn[2] * (size[0] - width))
        top = round(drawn[3] * (size[1] - height))
        return left, top, left + width, top + height


_COLOURS = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
