"""Captioning many photos: a bad photo is reported in its place, the others are captioned."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from captioner.errors import UserError
from captioner.vision.find_images import find_images
from captioner.vision.images import load_image

if TYPE_CHECKING:
    from captioner.caption import Caption, Captioner
    from captioner.decoding import SearchOptions

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True)
class Captioned:
    """A photo that was captioned."""

    path: str
    photo: Image.Image
    caption: Caption


@dataclass(frozen=True)
class Failed:
    """A photo that could not be captioned, and one sentence that says why."""

    path: str
    reason: str


def photo_paths(paths: Sequence[str]) -> tuple[list[str], list[Failed]]:
    """What files, folders and patterns name, and which of them named nothing usable."""
    found: list[str] = []
    failed: list[Failed] = []
    for path in paths:
        if not path:
            failed.append(Failed(path, "an empty path names no photo"))
            continue
        if _ADDRESS.match(path) and not os.path.lexists(path):
            failed.append(Failed(path, f"{path} is an address; photos are not fetched, only read"))
            continue
        try:
            found += [os.fspath(image) for image in find_images([path])]
        except UserError as error:
            failed.append(Failed(path, str(error)))
    return found, failed


def caption_photos(
    captioner: Captioner,
    paths: Sequence[str],
    search: SearchOptions | None = None,
    batch_size: int = 16,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order, a batch at a time; each gives a `Captioned` or a `Failed`."""
    generator = (search or captioner.search).generator()  # One for all batches.
    for first in range(0, len(paths), batch_size):
        loaded: list[tuple[str, Image.Image | UserError]] = []
        for path in paths[first : first + batch_size]:
            try:
                loaded.append((path, load_image(path)))
            except UserError as error:
                loaded.append((path, error))
        photos = [photo for _, photo in loaded if isinstance(photo, Image.Image)]
        captions = iter(captioner.caption_loaded(photos, search, generator))
        for path, photo in loaded:
            if isinstance(photo, UserError):
                yield Failed(path, str(photo))
            else:
                yield Captioned(path, photo, next(captions))
