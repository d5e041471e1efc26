"""Writes pictures to files: one, or one a word."""

import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from captioner.errors import UserError
from captioner.files import atomic_path
from captioner.render.overlay import Region, fit, overlay

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".pdf")
PAGE_SUFFIXES = (".html", ".htm")
"""File name endings of pictures and of web pages."""

WORD_PICTURE = re.compile(r"\d{2,}_[a-z0-9-]+\.(?:jpg|png)")
"""The file names of `save_word_images`; in earlier versions they ended in .png."""

_LONGEST_NAME, _LONGEST_SIDE = 40, 1024


def save_picture(path: str | os.PathLike[str], picture: Image.Image) -> None:
    """Write a picture in the format of the file name's ending."""
    check_suffix(path, PICTURE_SUFFIXES)
    with atomic_path(path) as temporary:
        picture.save(temporary, quality=90)


def check_suffix(path: str | os.PathLike[str], suffixes: Sequence[str]) -> None:
    """Raise `UserError` unless a file name ends in one of the suffixes."""
    if Path(path).suffix.lower() not in suffixes:
        raise UserError(f"cannot write {path}: its name must end in {' or '.join(suffixes)}")


def save_word_images(
    folder: str | os.PathLike[str],
    photo: Image.Image,
    words: Sequence[str],
    attention: Any,
    region: Region,
    strength: float = 0.8,
) -> list[Path]:
    """Write the overlay of each word as a JPEG in `folder`; return the paths in order.

    File names are the word's number and `safe_name`: `01_a.jpg`, `02_dog.jpg`. Files of other names
    in the folder stay. Other arguments are those of `panels`.
    """
    drawn_photo, drawn_region = fit(photo, region, _LONGEST_SIDE, enlarge=False)
    digits = max(2, len(str(len(words))))
    names = (f"{number:0{digits}}_{safe_name(word)}.jpg" for number, word in enumerate(words, 1))
    paths = [Path(folder) / name for name in names]
    for path, weights in zip(paths, attention, strict=True):
        save_picture(path, overlay(drawn_photo, weights, drawn_region, strength))
    return paths


def safe_name(word: str) -> str:
    """A word in lower-case ASCII letters, digits and hyphens; "word" if none remain."""
    plain = unicodedata.normalize("NFKD", word).encode("ascii", errors="ignore").decode("ascii")
    name = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name or "word"
