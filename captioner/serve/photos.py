"""Photos that were sent: decoded in memory, and made ready for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from PIL import Image
from torch import Tensor

from captioner.render.region import Region, fit
from captioner.serve.limits import Limits
from captioner.serve.uploads import Upload
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Preprocessing

_LONGEST_SIDE = 1000

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Prepared(Generic[Kept]):
    """What stays of a photo when it has been decoded.

    name: of its file. size: width and height in pixels, upright. region: left, top, right, bottom
    in those pixels, what the model sees. pixels: (3, size, size), what it is fed. kept: what else
    was to be kept.
    """

    name: str
    size: tuple[int, int]
    region: Region
    pixels: Tensor
    kept: Kept


def prepare(
    upload: Upload,
    preprocessing: Preprocessing,
    limits: Limits,
    keep: Callable[[Image.Image, Region], Kept],
) -> Prepared[Kept]:
    """Decode a file, and keep of it what captioning takes.

    keep: makes what else is to be kept from the photo and its region.
    Raises `UserError` as `load_image` does.
    """
    photo = load_image(upload.content, limits.pixels, name=upload.name)
    region = preprocessing.region(photo.width, photo.height)
    kept = keep(photo, region)
    return Prepared(upload.name, photo.size, region, preprocessing(photo), kept)


def keep_nothing(photo: Image.Image, region: Region) -> None:
    """For `prepare`: only the captions are wanted."""


def keep_small(photo: Image.Image, region: Region) -> tuple[Image.Image, Region]:
    """For `prepare`: the photo with at most 1000 pixels a side, and its region in those."""
    return fit(photo, region, _LONGEST_SIDE, enlarge=False)
