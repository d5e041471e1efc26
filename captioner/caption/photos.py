"""Photos in, captions out, one by one or in batches: all that needs no network and no torch."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, tee
from typing import Any, Literal, NamedTuple, overload

import numpy
from PIL import Image

from captioner.caption.caption import DRAWN_SIDE, Caption, sentence
from captioner.caption.confidence import Confidence
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.outcomes import (
    Failed,
    even_batch_size,
    in_background,
    read_batches,
    shape_as_given,
    with_results,
)
from captioner.text.languages import ENGLISH, language_tag
from captioner.text.vocabulary import Vocabulary
from captioner.vision.find_images import find_images
from captioner.vision.images import (
    IS_ADDRESS,
    ImageSource,
    image_name,
    is_address,
    load_image,
    original_size,
    shrink,
)
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.shards import SHARD_SUFFIXES, CellReader, numbered, shard_photos

NamedPhoto = tuple[str, Callable[[], Image.Image]]
"""A photo's name and the function that loads it or raises `UserError`."""

Translate = Callable[[list[Caption]], list[Caption]]
"""Translates captions, such as `translate_captions` with its translator."""


class _Loaded(NamedTuple):
    """A photo, as kept for its drawing, and `Preprocessing.pixels` of it."""

    name: str
    photo: Image.Image
    pixels: numpy.ndarray[Any, Any]


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


class PhotoCaptioner(ABC):
    """Captions photos, however its networks are computed.

    preprocessing: of photos. search: the default options. confidence: of a calibrated model.
    load_translation: gives what translates captions into a language; of models from
        `captioner.load`.
    """

    preprocessing: Preprocessing
    search: SearchOptions
    vocabulary: Vocabulary
    confidence: Confidence | None
    load_translation: Callable[[str], Translate] | None = None

    @cached_property
    def _translations(self) -> dict[str, Translate]:
        """By the languages that were asked for."""
        return {}

    @property
    @abstractmethod
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of an attention map."""

    @abstractmethod
    def caption_pixels(
        self, pixels: numpy.ndarray[Any, Any], search: SearchOptions, draws: Any = None
    ) -> list[Caption]:
        """Photos (B, 3, size, size), uint8 -> captions. draws: of `source_of_draws`."""

    def _caption(
        self,
        words: Sequence[str],
        log_probabilities: Sequence[float],
        attention: Any,
        score: float | None = None,
    ) -> Caption:
        """T words, T + 1 log-probabilities (the end's last), maps (T, L) -> a caption."""
        return Caption(
            text=sentence(words),
            words=tuple(words),
            log_probability=sum(log_probabilities),
            word_log_probabilities=tuple(log_probabilities[: len(words)]),
            attention=attention.reshape(-1, *self.map_shape),  # (T, rows, columns)
            score=score,
        )

    def _best_captions(self, results: Iterable[Sequence[Any]], n_best: int) -> list[Caption]:
        """Hypotheses of each photo, best first -> its caption with `n_best` - 1 alternatives."""
        captions = []
        for hypotheses in results:
            best = [
                self._caption(
                    [self.vocabulary.words[token] for token in each.tokens],
                    each.token_log_probabilities,
                    each.attention,
                    each.score,
                )
                for each in hypotheses[:n_best]
            ]
            if self.confidence is not None:
                best = self.confidence.judge(best)
            captions.append(replace(best[0], alternatives=tuple(best[1:])))
        return captions

    def source_of_draws(self, search: SearchOptions) -> Any:
        """What the samples of all batches are drawn from."""
        return None

    def workers_for(self, photos: int, batch_size: int) -> int:
        """Threads that caption a batch each; 0: none beside the calling one."""
        return 0

    def readers(self) -> int:
        """Threads that load a photo each; 0: none beside the calling one."""
        return 0

    @overload
    def caption(self, photos: Any, *, on_error: Literal["skip"], **options: Any) -> Any: ...

    @overload
    def caption(self, photos: ImageSource, **options: Any) -> Caption: ...

    @overload
    def caption(self, photos: Iterator[ImageSource], **options: Any) -> Iterator[Caption]: ...

    @overload
    def caption(self, photos: Iterable[ImageSource], **options: Any) -> list[Caption]: ...

    def caption(
        self,
        photos: Any,
        *,
        on_error: Literal["raise", "skip"] = "raise",
        batch_size: int = 16,
        language: str | None = None,
        **search: Any,
    ) -> Any:
        """Caption a photo, or photos in order.

        photos: one photo gives one caption, a list or other collection gives a list, and an
            iterator (such as a generator) gives an iterator, which reads it batch by batch. A photo
            is a path, the content of a file, a binary file, a Pillow image, a NumPy array (H, W, 3)
            or a tensor (3, H, W) of uint8 or of floats in [0, 1].
        on_error: `raise` raises `UserError` for a photo that cannot be read; `skip` gives a
            `Failed` with the reason in place of its caption.
        language: of the captions, such as "de" or "fr"; by default English.
        search: fields of `SearchOptions`, such as `beam=10` or `n_best=3`, over the model's own.
        """
        one = _is_one_photo(photos)
        is_list = isinstance(photos, Sized) and not one
        # An open image may be in a list twice, and only one thread may load it.
        are_files = is_list and all(isinstance(each, (str, os.PathLike)) for each in photos)
        sources, again = tee([photos] if one else photos)
        named = (self._named(each, None if one else n) for n, each in enumerate(sources, start=1))
        items = caption_photos(
            self,
            list(named) if is_list else named,
            self.search.override(**search),
            batch_size,
            drawn_side=DRAWN_SIDE,
            translate=self._translation(language),
            workers=self.workers_for(len(photos), batch_size) if is_list else 0,
            readers=self.readers() if are_files else 0,
        )
        return shape_as_given(photos, one, map(_with_source, again, items), on_error)

    def _translation(self, language: str | None) -> Translate | None:
        """What translates captions; None for English."""
        tag = language and language_tag(language, "language")
        if tag in (None, ENGLISH):
            return None
        if tag not in self._translations:
            if self.load_translation is None:
                raise UserError(
                    "this model captions in English only: captioner.load gives one that translates"
                )
            self._translations[tag] = self.load_translation(tag)
        return self._translations[tag]

    def _named(self, source: ImageSource, number: int | None) -> NamedPhoto:
        """A photo for `caption_photos`. number: its place in the list, if it is in one."""
        name = image_name(source, "the image" if number is None else f"image {number} of the list")
        return name, partial(self.preprocessing.load, source, name)


def caption_photos(
    captioner: PhotoCaptioner,
    photos: Iterable[NamedPhoto],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    drawn_side: int | None = None,
    translate: Translate | None = None,
    workers: int = 0,
    readers: int = 0,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order, as many batches in memory as there are workers, and one more.

    search: the captioner's own by default.
    drawn_side: pixels of the longer side that are needed of the photos in the results, whose pixels
        are otherwise in memory for a whole batch; None: all.
    translate: applied to the captions of each batch.
    workers: threads that caption a batch each; see `in_background`. One at most draws samples.
    readers: threads that load and resize a photo each; 0: the calling one.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    search = search or captioner.search
    draws = captioner.source_of_draws(search)

    def read(name: str, load: Callable[[], Image.Image]) -> _Loaded:
        photo = load()
        pixels = captioner.preprocessing.pixels(photo)
        return _Loaded(name, photo if drawn_side is None else shrink(photo, drawn_side), pixels)

    def write(loaded: list[_Loaded]) -> Iterator[Captioned]:
        if not loaded:
            return
        pixels = numpy.stack([each.pixels for each in loaded])  # (B, 3, size, size)
        captions = captioner.caption_pixels(pixels, search, draws)
        if translate is not None:
            captions = translate(captions)
        for (name, photo, _), caption in zip(loaded, captions, strict=True):
            region = captioner.preprocessing.region(*original_size(photo))
            yield Captioned(name, caption.of_photo(photo, region))

    workers = min(workers, 1) if search.sample else workers
    if workers and isinstance(photos, Sized):
        batch_size = even_batch_size(len(photos), batch_size, workers)
    batches = read_batches(photos, batch_size, read, readers)
    outcomes = in_background(lambda batch: with_results(batch, write), batches, workers)
    return chain.from_iterable(outcomes)


def named_photos(
    photos: Mapping[str, ImageSource], sufficient_side: int | None = None
) -> list[NamedPhoto]:
    """Photos for `caption_photos`, by their names. sufficient_side: for `load_image`."""

    def load(name: str) -> Image.Image:
        shown = "standard input" if name == "-" else name
        return load_image(photos[name], name=shown, sufficient_side=sufficient_side)

    return [(name, partial(load, name)) for name in photos]


def find_photos(
    paths: Sequence[str], passed_over: Counter[str] | None = None
) -> tuple[dict[str, ImageSource], list[Failed]]:
    """The photos that files, folders, patterns and shards hold, by name; and names without a photo.

    passed_over: for `find_images`.
    """
    photos: dict[str, ImageSource] = {}
    failed: list[Failed] = []
    reader = CellReader()
    for path in paths:
        if not path:
            failed.append(Failed(path, "an empty path names no photo"))
        elif path == "-":  # Standard input; a file of that name is ./-.
            photos[path] = path
        elif is_address(path) and not os.path.lexists(path):
            failed.append(Failed(path, f"{path} {IS_ADDRESS}"))
        else:
            problems: list[str] = []
            for file in map(os.fspath, find_images(numbered(path), problems.append, passed_over)):
                if file.lower().endswith(SHARD_SUFFIXES):
                    photos.update(shard_photos(file, problems.append, reader))
                else:
                    photos[file] = file
            failed += [Failed(path, problem) for problem in problems]
    return photos, failed


def _is_one_photo(photos: Any) -> bool:
    """Whether it is a photo, not photos; what is neither is one, for `load_image` to refuse."""
    if isinstance(photos, (str, bytes, bytearray, memoryview, os.PathLike, Image.Image)):
        return True
    if hasattr(photos, "dtype"):  # An array of one dimension holds paths, one of four is a batch.
        return len(photos.shape) in (0, 2, 3)
    return hasattr(photos, "read") or not isinstance(photos, Iterable)


def _with_source(source: ImageSource, item: Captioned | Failed) -> Caption | Failed:
    """The caption, or the failure; a path and the content of a file are kept, for drawing."""
    if isinstance(item, Failed):
        return item
    caption = item.caption
    if isinstance(source, (str, os.PathLike, bytes)) and caption.region is not None:
        return caption.of_photo(source, caption.region)
    return caption
