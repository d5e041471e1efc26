"""HEIC photos, which telephones take, read by pillow-heif."""

from __future__ import annotations

import contextlib
import re
from typing import BinaryIO

from PIL import Image

from captioner.errors import UserError

HEIF_SIGNATURE = rb"....ftyp(?:hei|hev|mif1|msf1)"
"""The first bytes of a file (ISO/IEC 23008-12, 10)."""

INSTALL = 'HEIC, which needs pillow-heif: pip install "captioner[heif]"'

_EXTENTS = re.compile(rb"\0\0\0\x14ispe....(....)(....)", re.DOTALL)
"""Boxes with width and height of what is coded, before cropping (ISO/IEC 23008-12, 6.5.3)."""


def register_heif() -> None:
    """Have Pillow read HEIC, where pillow-heif is installed."""
    if "HEIF" not in Image.OPEN:
        with contextlib.suppress(ImportError):
            from pillow_heif import register_heif_opener

            register_heif_opener()


def check_heif(file: BinaryIO, image: Image.Image, name: str, maximum_pixels: int) -> None:
    """Raise `UserError` for a HEIC file with more pixels to decode than it shows.

    A crop, or a grid larger than its picture, would pass the limit on what is shown.
    """
    file.seek(0)
    sizes = [
        int.from_bytes(width, "big") * int.from_bytes(height, "big")
        for width, height in _EXTENTS.findall(file.read())
    ]
    if tiling := image.info.get("tiling"):
        # The last row and column may reach beyond the picture.
        columns, rows = (max(1, tiling[key] - 1) for key in ("num_columns", "num_rows"))
        sizes.append(columns * tiling["tile_width"] * rows * tiling["tile_height"])
    if max(sizes, default=0) > maximum_pixels:
        raise UserError(
            f"{name} is too large: {max(sizes):,} pixels to decode, the limit is {maximum_pixels:,}"
        )
