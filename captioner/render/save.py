"""Writes pictures to files atomically."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from captioner.errors import UserError
from captioner.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
"""File name endings that `save_picture` accepts."""

PAGE_SUFFIXES = (".html", ".htm")
"""File name endings of web pages."""

PLOT_SUFFIXES = (".png", ".pdf", ".svg")
"""File name endings of plots."""


def save_picture(path: str | os.PathLike[str], picture: Image.Image) -> None:
    """Write a picture in the format of the file name's ending.

    Raises `UserError` unless `path` ends in one of `PICTURE_SUFFIXES`, and as `atomic_path` does.
    """
    check_suffix(path, PICTURE_SUFFIXES)
    with atomic_path(path) as temporary:
        picture.save(temporary, quality=90)


def save_figure(path: str | os.PathLike[str], figure: Figure, **options: Any) -> None:
    """Write a matplotlib figure.

    path: ends in one of `PLOT_SUFFIXES`. options: of `savefig`. Raises `UserError` as
    `atomic_path` does.
    """
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, **options)


def check_suffix(path: str | os.PathLike[str], suffixes: Sequence[str]) -> None:
    """Raise `UserError` unless a file name ends in one of the suffixes."""
    if Path(path).suffix.lower() not in suffixes:
        raise UserError(f"cannot write {path}: its name must end in {' or '.join(suffixes)}")
