"""Uploaded photos, decoded in memory by other processes."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image
from starlette.datastructures import UploadFile
from torch import Tensor

from captioner.render.region import Region, fit
from captioner.render.typography import printable
from captioner.render.web_page import jpeg_address
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import original_size, with_original_size
from captioner.vision.preprocessing import Preprocessing

_LONGEST_NAME = 100
_LONGEST_SIDE = 1000


@dataclass(frozen=True)
class Prepared:
    """A decoded photo.

    name: of its file. size: width and height in pixels, upright. region: left, top, right, bottom
    in those pixels, what the model sees. pixels: (3, size, size), the model's input. photo: with at
    most 1000 pixels a side, and its `original_size`; None unless it is to be drawn.
    """

    name: str
    size: tuple[int, int]
    region: Region
    pixels: Tensor
    photo: Image.Image | None

    @property
    def preview(self) -> str | None:
        """The photo as a `data:` address; None without one."""
        return jpeg_address(self.photo) if self.photo else None


def prepare(
    content: bytes,
    name: str,
    preprocessing: Preprocessing,
    most_pixels: int,
    decoders: DecodingPool,
    drawn: bool,
) -> Prepared:
    """Decode a file. drawn: keep the photo.

    Raises `UserError` as `DecodingPool.load` does.
    """
    side = max(preprocessing.sufficient_side, _LONGEST_SIDE if drawn else 0)
    photo = decoders.load(content, name, most_pixels, side)
    size = original_size(photo)
    region = preprocessing.region(*size)
    pixels = preprocessing(photo)
    if not drawn:
        return Prepared(name, size, region, pixels, None)
    small, _ = fit(photo, (0, 0, *photo.size), _LONGEST_SIDE, enlarge=False)
    return Prepared(name, size, region, pixels, with_original_size(small, size))


def short_name(file: UploadFile) -> str:
    """The name of an uploaded file, on one line, without folders; empty for none."""
    name = printable((file.filename or "").replace("\\", "/").rpartition("/")[2])
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
