"""A mark in the metadata of pictures that captioner drew, to know them from photos."""

from __future__ import annotations

import os

from PIL import ExifTags, Image

DRAWN_MARK = "attention maps drawn by captioner"
"""A comment in GIF files, the Exif tag `Software` in others."""

_MARGIN = 4096
"""Bytes at the start and end of a file that hold the metadata of a drawing."""


def drawn_mark() -> Image.Exif:
    """The Exif data of a drawing, for `Image.save`."""
    exif = Image.Exif()
    exif[ExifTags.Base.Software] = DRAWN_MARK
    return exif


def is_drawn(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the mark; False for what cannot be read.

    Pillow would decode whole PNG files for their Exif data: 150 ms, not 0.02, for 6 megapixels.
    """
    mark = DRAWN_MARK.encode()
    try:
        if not os.path.isfile(path):  # A pipe would wait for its writer.
            return False
        with open(path, "rb") as file:
            start = file.read(_MARGIN)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MARGIN))
            return mark in start or mark in file.read()
    except (OSError, ValueError):  # ValueError: a name that no file can have.
        return False
