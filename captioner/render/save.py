"""Writing a picture to a file, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from captioner.errors import UserError
from captioner.files import atomic_path

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
"""Ends of file names that `save_picture` knows."""


def save_picture(path: str | os.PathLike[str], picture: Image.Image) -> None:
    """Write a picture in the format that the end of `path` names.

    Raises `UserError` for an end that is not one of `PICTURE_SUFFIXES`, and as `atomic_path`
    does.
    """
    if Path(path).suffix.lower() not in PICTURE_SUFFIXES:
        raise UserError(f"cannot write {path}: its name must end in {', '.join(PICTURE_SUFFIXES)}")
    with atomic_path(path) as temporary:
        picture.save(temporary, quality=90)
