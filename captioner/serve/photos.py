"""Uploaded photos."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image
from starlette.datastructures import UploadFile
from torch import Tensor

from captioner.render.region import Region
from captioner.render.typography import printable
from captioner.render.web_page import jpeg_address

_LONGEST_NAME = 100

LONGEST_SIDE = 1000
"""Pixels of a photo to be drawn on."""


@dataclass(frozen=True)
class Prepared:
    """A decoded photo.

    name: of its file. size: width and height in pixels, upright. region: left, top, right, bottom
    in those pixels, what the model sees. pixels: (3, size, size), the model's input. photo: with at
    most `LONGEST_SIDE` pixels a side, and its `original_size`; None unless it is to be drawn.
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


def short_name(file: UploadFile) -> str:
    """The name of an uploaded file, on one line, without folders; empty for none."""
    name = printable((file.filename or "").replace("\\", "/").rpartition("/")[2])
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
