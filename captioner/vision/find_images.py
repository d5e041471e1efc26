"""Finds the image files that files, folders and patterns name."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from captioner.errors import UserError
from captioner.vision.images import IMAGE_SUFFIXES, is_photo

_KINDS = {
    "video": ".3gp .avi .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .webm .wmv",
    "raw file": ".3fr .arw .cr2 .cr3 .crw .dng .erf .fff .iiq .kdc .mef .mos .mrw .nef .nrw .orf "
    ".pef .raf .raw .rw2 .rwl .sr2 .srf .srw .x3f",
    "other picture": ".ai .blp .bw .cur .dcx .dds .emf .eps .exr .fit .fits .flc .fli .ftu .gbr "
    ".hdr .icb .icns .ico .im .jxl .jxr .msp .pam .pcd .psb .psd .pxr .qoi .ras .rgb .rgba .sgi "
    ".svg .tga .vda .vst .wmf .xbm .xcf .xpm",
}
_KIND_OF = {suffix: kind for kind, suffixes in _KINDS.items() for suffix in suffixes.split()}
"""The kinds of files beside photos that are not read, by suffix."""


def refuse(sentence: str) -> None:
    """Raise `UserError`."""
    raise UserError(sentence)


def find_images(
    paths: Iterable[str | os.PathLike[str]],
    report: Callable[[str], None] = refuse,
    passed_over: Counter[str] | None = None,
) -> list[Path]:
    """The image files that files, folders and patterns (`*`, `?`, `[...]`, `**`) name, in order.

    A folder stands for the photos in and below it, sorted, without hidden ones: files with a suffix
    in `IMAGE_SUFFIXES`, and those without a suffix that begin as a photo does. A named file may
    have any suffix; a path that does not exist is returned as it is, and fails on loading.

    report: takes a sentence about a pattern or a folder without images, a folder that cannot be
        read, and a link to a folder inside a folder, which is not followed.
    passed_over: counts the videos, raw files and other pictures in folders.
    """
    counts = Counter() if passed_over is None else passed_over
    images: list[Path] = []
    for path in paths:
        typed = os.fspath(path)
        matches = [typed]
        if not os.path.lexists(typed) and "\0" not in typed and glob.has_magic(typed):
            matches = sorted(glob.glob(typed, recursive=True))
            if not matches:
                report(f"{typed} matches no file")
        for match in matches:
            is_folder = os.path.isdir(match)
            images += _images_below(match, report, counts) if is_folder else [Path(match)]
    return images


def passed_over_in_words(passed_over: Counter[str]) -> str:
    """The counts of `find_images`: "12 videos and 3 raw files were not read"."""
    parts = [f"{n:,} {kind}{'s' if n > 1 else ''}" for kind, n in passed_over.most_common()]
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
    return f"{listed} {'was' if passed_over.total() == 1 else 'were'} not read"


def _images_below(
    folder: str, report: Callable[[str], None], passed_over: Counter[str]
) -> list[Path]:
    images: list[Path] = []
    errors: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=errors.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            inside = os.path.join(parent, name)
            if os.path.islink(inside):
                report(f"folder {inside} is a symbolic link and was not entered")
        for name in files:
            path, suffix = Path(parent, name), os.path.splitext(name)[1].lower()
            if name.startswith("."):
                continue
            if suffix in IMAGE_SUFFIXES or (not suffix and is_photo(path)):
                images.append(path)
            elif suffix in _KIND_OF:
                passed_over[_KIND_OF[suffix]] += 1
    for error in errors:
        report(f"cannot read folder {error.filename}: {error.strerror or error}")
    if not images and not errors:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        report(f"folder {folder} holds no images (files ending in {suffixes})")
    return sorted(images)
