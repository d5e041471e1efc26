"""Uploaded photos, decoded in memory by other processes.

Photos are private, so none is written to disk. Starlette's form parser writes files above 1 MB to
temporary ones; here they stay in memory, which `admission` bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from PIL import Image
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartParser
from torch import Tensor

from captioner.render.region import Region, fit
from captioner.render.typography import printable
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import original_size, with_original_size
from captioner.vision.preprocessing import Preprocessing

_LONGEST_NAME = 100
_LONGEST_SIDE = 1000

Kept = TypeVar("Kept")


def keep_uploads_in_memory() -> None:
    """Switch off temporary files, for every form parsed in this process."""
    MultiPartParser.spool_max_size = 0  # No limit.


@dataclass(frozen=True)
class Prepared(Generic[Kept]):
    """A decoded photo.

    name: of its file. size: width and height in pixels, upright. region: left, top, right, bottom
    in those pixels, what the model sees. pixels: (3, size, size), the model's input. kept: what
    the caller asked to keep.
    """

    name: str
    size: tuple[int, int]
    region: Region
    pixels: Tensor
    kept: Kept


def prepare(
    content: bytes,
    name: str,
    preprocessing: Preprocessing,
    most_pixels: int,
    decoders: DecodingPool,
    keep: Callable[[Image.Image, Region], Kept],
) -> Prepared[Kept]:
    """Decode a file.

    keep: makes what to keep, from the photo, with at least 1000 pixels a side unless the file has
        fewer, and its region in those.
    Raises `UserError` as `DecodingPool.load` does.
    """
    side = max(preprocessing.sufficient_side, 0 if keep is keep_nothing else _LONGEST_SIDE)
    photo = decoders.load(content, name, most_pixels, side)
    kept = keep(photo, preprocessing.region(*photo.size))
    size = original_size(photo)
    return Prepared(name, size, preprocessing.region(*size), preprocessing(photo), kept)


def keep_nothing(photo: Image.Image, region: Region) -> None:
    """For `prepare`, where only captions are wanted."""


def keep_small(photo: Image.Image, region: Region) -> Image.Image:
    """For `prepare`: the photo with at most 1000 pixels a side, and its `original_size`."""
    small, _ = fit(photo, region, _LONGEST_SIDE, enlarge=False)
    return with_original_size(small, original_size(photo))


def short_name(file: UploadFile) -> str:
    """The name of an uploaded file, on one line, without folders; empty for none."""
    name = printable((file.filename or "").replace("\\", "/").rpartition("/")[2])
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
