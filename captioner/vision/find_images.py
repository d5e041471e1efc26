"""Finds the image files that files, folders and patterns name."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from captioner.errors import UserError
from captioner.vision.images import IMAGE_SUFFIXES


def find_images(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The image files that files, folders and patterns (`*`, `?`, `[...]`, `**`) name, in order.

    A folder stands for the files in and below it with a suffix in `IMAGE_SUFFIXES`, sorted,
    without hidden ones. A pattern is expanded as by a shell, sorted. A named file may have any
    suffix; a path or pattern that matches nothing is returned as it is, and fails on loading.

    Raises `UserError` for a folder without images or one that cannot be read.
    """
    images: list[Path] = []
    for path in paths:
        typed = os.fspath(path)
        if not os.path.lexists(typed) and "\0" not in typed and glob.has_magic(typed):
            matches = sorted(glob.glob(typed, recursive=True))
        else:
            matches = []
        for match in matches or [typed]:
            images.extend(_images_below(match) if os.path.isdir(match) else [Path(match)])
    return images


def _images_below(folder: str) -> list[Path]:
    images = []
    for parent, folders, files in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images += [
            Path(parent, name)
            for name in files
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
        ]
    if not images:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        raise UserError(f"folder {folder} holds no images (files ending in {suffixes})")
    return sorted(images)


def _refuse_unreadable(error: OSError) -> None:
    raise UserError(f"cannot read folder {error.filename}: {error.strerror or error}") from None
