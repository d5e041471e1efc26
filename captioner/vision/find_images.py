"""Image files named by files, folders and patterns on the command line."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from captioner.errors import UserError
from captioner.vision.images import IMAGE_SUFFIXES


def find_images(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The image files that files, folders and patterns (`*`, `?`, `[...]`, `**`) name.

    They come in the order given; what one folder or pattern names is sorted. Of a folder come the
    files in it and in the folders below it whose suffix is in `IMAGE_SUFFIXES` (in either case),
    hidden files and folders passed over. What a pattern matches is treated as if it had been
    typed, as a shell would do. A file named outright is taken whatever its suffix is, and a path
    or pattern that names nothing comes back as it is, for whoever loads it to report.

    Raises `UserError` naming a folder without images, or one that cannot be read.
    """
    found: list[Path] = []
    for path in paths:
        typed = os.fspath(path)
        if not os.path.lexists(typed) and "\0" not in typed and glob.has_magic(typed):
            matches = sorted(glob.glob(typed, recursive=True))
        else:
            matches = []
        for match in matches or [typed]:
            found.extend(_images_below(match) if os.path.isdir(match) else [Path(match)])
    return found


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
