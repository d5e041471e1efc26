"""The one preprocessing: from a photo to what the encoder is fed."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor

from captioner.errors import UserError
from captioner.fields import to_mapping
from captioner.vision.images import load_image

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean red, green and blue of the ImageNet photos, 1.0 being full; torchvision's VGGs expect it."""

IMAGENET_STANDARD_DEVIATION = (0.229, 0.224, 0.225)
"""Their standard deviations, in the same unit."""

_RESIZES = ("crop", "squash")
_INTERPOLATIONS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


@dataclass(frozen=True)
class Preprocessing:
    """How a photo becomes numbers; a part of the model, saved in its `config.json`.

    size: pixels, both sides of what the encoder sees.
    resize: "crop" keeps the aspect ratio: the shorter side is scaled to `resize_shorter` pixels
        and the centre cut out. "squash" scales both sides to `size`, whatever the aspect ratio.
    resize_shorter: pixels, at least `size`; has a meaning with "crop" only.
    mean, standard_deviation: of red, green and blue (1.0 being full), taken off and divided by.
    interpolation: "bilinear" or "bicubic", both with antialiasing.

    Raises `UserError` naming the field that has no such value.
    """

    size: int = 224
    resize: str = "crop"
    resize_shorter: int = 256
    mean: tuple[float, float, float] = IMAGENET_MEAN
    standard_deviation: tuple[float, float, float] = IMAGENET_STANDARD_DEVIATION
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        _check_whole("size", self.size)
        _check_whole("resize_shorter", self.resize_shorter)
        _check_choice("resize", self.resize, _RESIZES)
        _check_choice("interpolation", self.interpolation, tuple(_INTERPOLATIONS))
        for field in ("mean", "standard_deviation"):
            object.__setattr__(self, field, _three_numbers(field, getattr(self, field)))
        if min(self.standard_deviation) <= 0:
            raise _refused("standard_deviation", "three numbers above 0", self.standard_deviation)
        if self.resize == "crop" and self.resize_shorter < self.size:
            raise _refused("resize_shorter", f"at least size ({self.size})", self.resize_shorter)

    def __call__(self, image: Image.Image) -> Tensor:
        """The photo as (3, size, size), float32, normalised.

        A photo that is not RGB yet is made so as `load_image` does. Raises `UserError` as it does.
        """
        if image.mode != "RGB":
            image = load_image(image)
        seen = image.resize(
            (self.size, self.size),
            resample=_INTERPOLATIONS[self.interpolation],
            box=self.region(*image.size),
        )
        pixels = torch.from_numpy(numpy.array(seen))  # (size, size, 3)
        channels = pixels.permute(2, 0, 1).contiguous().float() / 255  # (3, size, size)
        mean = torch.tensor(self.mean).view(3, 1, 1)
        return (channels - mean) / torch.tensor(self.standard_deviation).view(3, 1, 1)

    def batch(self, images: Sequence[Image.Image]) -> Tensor:
        """Photos of any sizes as (B, 3, size, size), each exactly as alone."""
        if not images:
            return torch.empty(0, 3, self.size, self.size)
        return torch.stack([self(image) for image in images])  # (B, 3, size, size)

    def region(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom, in pixels of the photo, of what the encoder sees of it.

        `width` and `height` are those of the photo, upright. The edges need not lie between two
        pixels: this is the very box that is resized, so that a map drawn into it lies true.

        Raises `UserError` when the photo has no pixels.
        """
        if width < 1 or height < 1:
            raise UserError(f"a photo of {width} x {height} has no pixels")
        if self.resize == "squash":
            return 0.0, 0.0, float(width), float(height)
        side = min(width, height) * self.size / self.resize_shorter
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def fingerprint(self) -> str:
        """64 hexadecimal digits (SHA-256 of the fields) that differ when any field does."""
        text = json.dumps(to_mapping(self), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _check_whole(field: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise _refused(field, "a whole number above 0", value)


def _check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise _refused(field, " or ".join(repr(choice) for choice in choices), value)


def _three_numbers(field: str, value: Any) -> tuple[float, ...]:
    if (
        not isinstance(value, (tuple, list))
        or len(value) != 3
        or not all(type(number) in (int, float) and math.isfinite(number) for number in value)
    ):
        raise _refused(field, "three numbers", value)
    return tuple(float(number) for number in value)


def _refused(field: str, wanted: str, value: Any) -> UserError:
    return UserError(f"preprocessing field {field!r} must be {wanted}, not {value!r}")
