"""A mark in the metadata of pictures that captioner drew, to know them from photos."""

from __future__ import annotations

import os

from PIL import Image

_SOFTWARE_TAG = 0x0131  # EXIF 2.32, table 4: the program that made the picture
_PROGRAM = "captioner"


def drawn_mark() -> Image.Exif:
    """The EXIF data of a drawing, for `Image.save`."""
    exif = Image.Exif()
    exif[_SOFTWARE_TAG] = _PROGRAM
    return exif


def is_drawn(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a picture with the mark; False for what cannot be read."""
    try:
        with Image.open(path) as picture:
            return picture.getexif().get(_SOFTWARE_TAG) == _PROGRAM
    except Exception:  # Pillow's plugins raise any exception for a damaged header.
        return False
