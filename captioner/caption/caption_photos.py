"""Captions photos in batches: each photo yields its caption or the reason for none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
from PIL import Image

from captioner.caption.captioner import Captioner
from captioner.caption.written_caption import Caption
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.vision.find_images import find_images
from captioner.vision.images import load_image

NamedPhoto = tuple[str, Callable[[], Image.Image]]
"""A photo's name and the function that loads it or raises `UserError`."""

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True)
class Captioned:
    """A photo and its caption."""

    name: str
    photo: Image.Image
    caption: Caption


@dataclass(frozen=True)
class Failed:
    """A photo without a caption, and the reason in one sentence."""

    name: str
    reason: str


def caption_photos(
    captioner: Captioner,
    photos: Iterable[NamedPhoto],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    generator: torch.Generator | None = None,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order, one batch in memory at a time.

    search: the captioner's own by default. generator: draws samples; by default one generator with
        the search's seed for all batches.
    Raises `UserError` for a batch size below 1.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    generator = generator or (search or captioner.search).generator()
    remaining = iter(photos)
    while batch := list(islice(remaining, batch_size)):
        loaded: list[tuple[str, Image.Image | UserError]] = []
        for name, load in batch:
            try:
                loaded.append((name, load()))
            except UserError as error:
                loaded.append((name, error))
        readable = [photo for _, photo in loaded if isinstance(photo, Image.Image)]
        captions = iter(captioner.caption_loaded(readable, search, generator))
        for name, photo in loaded:
            if isinstance(photo, UserError):
                yield Failed(name, str(photo))
            else:
                yield Captioned(name, photo, next(captions))


def named_photos(paths: Iterable[str]) -> list[NamedPhoto]:
    """Photo files for `caption_photos`, named by their paths."""
    return [(path, partial(load_image, path)) for path in paths]


def photo_paths(paths: Sequence[str]) -> tuple[list[str], list[Failed]]:
    """The photos named by files, folders and patterns, and the names without a photo."""
    photos: list[str] = []
    failed: list[Failed] = []
    for path in paths:
        if not path:
            failed.append(Failed(path, "an empty path names no photo"))
            continue
        if _ADDRESS.match(path) and not os.path.lexists(path):
            failed.append(Failed(path, f"{path} is an address; photos are not fetched, only read"))
            continue
        try:
            photos += [os.fspath(image) for image in find_images([path])]
        except UserError as error:
            failed.append(Failed(path, str(error)))
    return photos, failed
