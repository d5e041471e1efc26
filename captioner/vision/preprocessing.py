"""Photos as an encoder sees them, in training with random changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.arrays import Values
from captioner.schema import Config, Fraction, Share
from captioner.vision.images import ImageSource, load_image

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Mean and deviation of ImageNet's red, green and blue, in [0, 1], for torchvision's models.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STANDARD_DEVIATION = (0.229, 0.224, 0.225)

Pixels = Annotated[int, Field(ge=1, le=4_096)]
Channel = Annotated[float, Field(ge=-1_000, le=1_000)]
Deviation = Annotated[float, Field(gt=0, le=1_000)]


class Preprocessing(Config):
    """Resizing and normalisation of photos; saved with the model in its `config.json`."""

    size: Pixels = Field(224, description="pixels, both sides of what the encoder sees")
    resize: Literal["crop", "squash"] = Field(
        "crop", description="crop: shorter side to resize_shorter, and the centre; squash: to size"
    )
    resize_shorter: Pixels = Field(
        256, description="pixels, at least size; of crop only; by default in proportion to size"
    )
    mean: tuple[Channel, Channel, Channel] = Field(
        IMAGENET_MEAN, strict=False, description="of red, green and blue (1.0 is full), subtracted"
    )
    standard_deviation: tuple[Deviation, Deviation, Deviation] = Field(
        IMAGENET_STANDARD_DEVIATION, strict=False, description="per-channel standard deviation, > 0"
    )
    interpolation: Literal["bilinear", "bicubic"] = Field("bicubic", description="antialiased")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.resize == "crop" and self.resize_shorter < self.size:
            raise ValueError(f"resize_shorter {self.resize_shorter} is less than size, {self.size}")
        return self

    def __call__(self, image: Image.Image) -> Tensor:
        """The photo as (3, size, size), float32, normalised; in RGB, as `load_image` gives it."""
        import torch

        return self.normalise(torch.from_numpy(self.pixels(image)))  # type: ignore[no-any-return]

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """The photo as (3, size, size), uint8, for `normalise`: a quarter of float32's bytes."""
        photo = image if image.mode == "RGB" else load_image(image)
        method = Image.Resampling[self.interpolation.upper()]
        resized = photo.resize((self.size, self.size), method, self.region(*photo.size))
        return np.asarray(resized).transpose(2, 0, 1).copy()  # (3, size, size)

    def normalise(self, pixels: Values) -> Values:
        """Photos (..., 3, size, size), uint8, as float32: an array, or a tensor on its device."""
        shares = pixels / np.float32(255)
        channels = zip(self.mean, self.standard_deviation, strict=True)
        for channel, (mean, deviation) in enumerate(channels):
            shares[..., channel, :, :] -= mean
            shares[..., channel, :, :] /= deviation
        return shares

    def load(
        self, source: ImageSource, name: str | None = None, seconds: float | None = None
    ) -> Image.Image:
        """Load a photo with only as many pixels as needed: 2 MB for 12 megapixels, not 36 MB.

        seconds: the `decoding_seconds` of `load_image`.
        """
        side = self.sufficient_side
        return load_image(source, name=name, sufficient_side=side, decoding_seconds=seconds)

    @property
    def sufficient_side(self) -> int:
        """The `sufficient_side` of `load_image`: twice the shorter side that the encoder sees."""
        return 2 * (self.size if self.resize == "squash" else self.resize_shorter)

    def region(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what the encoder sees, in pixels of the upright photo."""
        if self.resize == "squash":
            return 0.0, 0.0, float(width), float(height)
        side = min(width, height) * self.size / self.resize_shorter
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side


class Augmentation(Config):
    """Random changes to a training photo each time it is read.

    A cut's share of the area is uniform, its aspect ratio 3/4 to 4/3 (Szegedy et al. 2015, section
    6); both are drawn again for a cut that does not fit.
    """

    crop: Share = Field(
        1.0, description="smallest share of a photo's area that is cut out; 1 cuts nothing"
    )
    mirror: bool = Field(False, description="mirror every other photo; captions with sides stay")
    colour: Fraction = Field(
        0.0, description="most that brightness, contrast and saturation are scaled away from 1"
    )

    def __call__(self, photo: Image.Image, generator: torch.Generator) -> Image.Image:
        """Augment an RGB photo; a crop is not scaled back."""
        # Imported here: torchvision takes about as long to import as torch.
        import torch
        from torchvision.transforms import v2

        with torch.random.fork_rng(devices=[]):  # Torchvision draws from the global generator.
            torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            if self.crop < 1:
                box = v2.RandomResizedCrop(1, scale=(self.crop, 1.0)).make_params([photo])
                photo = v2.functional.crop(photo, **box)
            if self.mirror:
                photo = v2.RandomHorizontalFlip()(photo)
            if self.colour > 0:
                photo = v2.ColorJitter(self.colour, self.colour, self.colour)(photo)
        return photo
