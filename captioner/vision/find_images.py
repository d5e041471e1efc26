"""Finds the image files that files, folders and patterns name."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from captioner.errors import UserError
from captioner.vision.drawn import is_drawn
from captioner.vision.images import IMAGE_SUFFIXES

Report = Callable[[str], None]


def refuse(sentence: str) -> None:
    """Raise `UserError`."""
    raise UserError(sentence)


def find_images(paths: Iterable[str | os.PathLike[str]], report: Report = refuse) -> list[Path]:
    """The image files that files, folders and patterns (`*`, `?`, `[...]`, `**`) name, in order.

    A folder stands for the files in and below it with a suffix in `IMAGE_SUFFIXES`, sorted,
    without hidden ones. A pattern is expanded as by a shell, sorted. Neither gives pictures that
    captioner drew. A named file may have any suffix; a path or pattern that matches nothing is
    returned as it is, and fails on loading.

    report: takes a sentence about a folder without images, one that cannot be read, and a link to
        a folder inside a folder, which is not followed. By default it raises `UserError`.
    """
    images: list[Path] = []
    for path in paths:
        typed = os.fspath(path)
        if not os.path.lexists(typed) and "\0" not in typed and glob.has_magic(typed):
            found = sorted(glob.glob(typed, recursive=True))
            matches = [match for match in found if not is_drawn(match)] or found
        else:
            matches = []
        for match in matches or [typed]:
            images.extend(_images_below(match, report) if os.path.isdir(match) else [Path(match)])
    return images


def _images_below(folder: str, report: Report) -> list[Path]:
    images, problems = [], 0

    def report_unreadable(error: OSError) -> None:
        nonlocal problems
        problems += 1
        report(f"cannot read folder {error.filename}: {error.strerror or error}")

    for parent, folders, files in os.walk(folder, onerror=report_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            inside = os.path.join(parent, name)
            if os.path.islink(inside):
                report(f"folder {inside} is a symbolic link and was not entered")
        images += [
            Path(parent, name)
            for name in files
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
        ]
    images = [image for image in images if not is_drawn(image)]
    if not images and not problems:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        report(f"folder {folder} holds no images (files ending in {suffixes})")
    return sorted(images)
