"""Writes pictures to files atomically."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from captioner.errors import UserError
from captioner.files import atomic_path

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
"""File name endings that `save_picture` accepts."""


def save_picture(path: str | os.PathLike[str], picture: Image.Image) -> None:
    """Write a picture in the format of the file name's ending.

    Raises `UserError` unless `path` ends in one of `PICTURE_SUFFIXES`, and as `atomic_path` does.
    """
    if Path(path).suffix.lower() not in PICTURE_SUFFIXES:
        raise UserError(f"cannot write {path}: its name must end in {', '.join(PICTURE_SUFFIXES)}")
    with atomic_path(path) as temporary:
        picture.save(temporary, quality=90)
