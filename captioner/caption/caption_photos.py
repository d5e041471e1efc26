"""Captions photos in batches: each photo yields its caption or the reason for none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor

from captioner.background import in_background
from captioner.caption.written_caption import Caption
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.outcomes import Failed
from captioner.vision.find_images import find_images
from captioner.vision.images import IS_ADDRESS, is_address, load_image, original_size, shrink

if TYPE_CHECKING:
    from captioner.caption.captioner import Captioner

NamedPhoto = tuple[str, Callable[[], Image.Image]]
"""A photo's name and the function that loads it or raises `UserError`."""


_Batch = tuple[list[Failed | tuple[str, Image.Image]], list[Tensor]]
"""What is kept of each photo, and the pixels (3, size, size) of those that could be read."""


@dataclass(frozen=True)
class Captioned:
    """A photo's name and its caption, whose `photo` may have fewer pixels than the file."""

    name: str
    caption: Caption

    @property
    def photo(self) -> Image.Image:
        """The decoded photo."""
        assert isinstance(self.caption.photo, Image.Image)  # `caption_photos` sets it.
        return self.caption.photo


def caption_photos(
    captioner: Captioner,
    photos: Iterable[NamedPhoto],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    drawn_side: int | None = None,
    translate: Callable[[list[Caption]], list[Caption]] | None = None,
    workers: int = 0,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order, as many batches in memory as there are workers, and one more.

    search: the captioner's own by default.
    drawn_side: pixels of the longer side that are needed of the photos in the results, whose pixels
        are otherwise in memory for a whole batch; None: all.
    translate: applied to the captions of each batch, such as `translate_captions`.
    workers: threads that caption a batch each; see `in_background`. One at most draws samples.
    Raises `UserError`, before it reads any photo, for a batch size below 1.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    search = search or captioner.search
    generator = search.generator(captioner.device)  # Of all batches.

    def write(batch: _Batch) -> list[Captioned | Failed]:
        loaded, pixels = batch
        captions: Iterator[Caption] = iter(())
        if pixels:
            annotations = captioner.encode(torch.stack(pixels))  # (B, L, D)
            written = captioner.caption_annotations(annotations, search, generator)
            captions = iter(translate(written) if translate else written)
        items: list[Captioned | Failed] = []
        for each in loaded:
            if isinstance(each, Failed):
                items.append(each)
            else:
                name, photo = each
                region = captioner.preprocessing.region(*original_size(photo))
                items.append(Captioned(name, next(captions).of_photo(photo, region)))
        return items

    batches = _load(captioner, iter(photos), batch_size, drawn_side)
    workers = min(workers, 1) if search.sample else workers
    return chain.from_iterable(in_background(write, batches, workers))


def _load(
    captioner: Captioner, photos: Iterator[NamedPhoto], batch_size: int, drawn_side: int | None
) -> Iterator[_Batch]:
    while batch := list(islice(photos, batch_size)):
        loaded: list[Failed | tuple[str, Image.Image]] = []
        pixels = []
        for name, load in batch:
            try:
                photo = load()
                preprocessed = captioner.preprocessing(photo)
                kept = photo if drawn_side is None else shrink(photo, drawn_side)
            except UserError as error:
                loaded.append(Failed(name, str(error)))
            except MemoryError:
                loaded.append(Failed(name, f"{name} needs more memory than there is"))
            else:
                loaded.append((name, kept))
                pixels.append(preprocessed)
        yield loaded, pixels


def named_photos(
    paths: Iterable[str], sufficient_side: int | None = None, standard_input: bytes | None = None
) -> list[NamedPhoto]:
    """Photo files for `caption_photos`, named by their paths.

    sufficient_side: for `load_image`. standard_input: the content of the photo `-`.
    """
    load = partial(load_image, sufficient_side=sufficient_side)
    given = {}
    if standard_input is not None:
        given["-"] = partial(load, standard_input, name="standard input")
    return [(path, given.get(path, partial(load, path))) for path in paths]


def photo_paths(
    paths: Sequence[str], passed_over: Counter[str] | None = None
) -> tuple[list[str], list[Failed]]:
    """The photos named by files, folders and patterns, each once, and the names without a photo.

    passed_over: for `find_images`.
    """
    photos: list[str] = []
    failed: list[Failed] = []
    for path in paths:
        problems: list[str] = []
        if not path:
            problems.append("an empty path names no photo")
        elif path == "-":  # Standard input; a file of that name is ./-.
            photos.append(path)
        elif is_address(path) and not os.path.lexists(path):
            problems.append(f"{path} {IS_ADDRESS}")
        else:
            photos += map(os.fspath, find_images([path], problems.append, passed_over))
        failed += [Failed(path, problem) for problem in problems]
    return list(dict.fromkeys(photos)), failed
