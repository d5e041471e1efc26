"""Photos in, captions out, one by one or in batches: all that needs no network and no torch."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from itertools import chain
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
    loading_workers,
    read_batches,
    shape_as_given,
    with_results,
    workers_for,
)
from captioner.text.languages import ENGLISH, language_tag
from captioner.text.vocabulary import Vocabulary
from captioner.vision.find_images import find_images
from captioner.vision.images import (
    IS_ADDRESS,
    ImageSource,
    image_name,
    is_address,
    original_size,
    shrink,
)
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.shards import SHARD_SUFFIXES, CellReader, numbered, shard_photos

Translate = Callable[[list[Caption]], list[Caption]]
"""Translates captions, such as `translate_captions` with its translator."""


class Captioned(NamedTuple):
    """A photo's name and its caption."""

    name: str
    caption: Caption


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

    @property
    def device(self) -> Any:
        """Torch's device, where it computes; None without torch."""
        return None

    def source_of_draws(self, search: SearchOptions) -> Any:
        """The generator of the samples of all batches; None without sampling."""
        return search.generator(self.device) if search.sample and self.device is not None else None

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
        named = (
            (image_name(each, "the image" if one else f"image {number} of the list"), each)
            for number, each in enumerate([photos] if one else photos, start=1)
        )
        items = caption_photos(
            self,
            list(named) if is_list else named,
            self.search.override(**search),
            batch_size,
            translate=self._translation(language),
            # An open image may be in a list twice, and only one thread may load it.
            are_files=is_list and all(isinstance(each, (str, os.PathLike)) for each in photos),
        )
        results = (each.caption if isinstance(each, Captioned) else each for each in items)
        return shape_as_given(photos, one, results, on_error)

    def _translation(self, language: str | None) -> Translate | None:
        """What translates captions; None for English."""
        tag = language and language_tag(language, "language")
        if tag in (None, ENGLISH):
            return None
        if self.load_translation is None:
            raise UserError(
                "this model captions in English only: captioner.load gives one that translates"
            )
        return self.load_translation(tag)


def caption_photos(
    captioner: PhotoCaptioner,
    photos: Iterable[tuple[str, ImageSource]],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    translate: Translate | None = None,
    are_files: bool = True,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order. Of a list, several batches at once, and more read meanwhile.

    photos: their names and sources. `-` is the name of standard input.
    search: the captioner's own by default.
    translate: applied to the captions of each batch.
    are_files: whether several threads may load photos.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    search = search or captioner.search
    draws, preprocessing = captioner.source_of_draws(search), captioner.preprocessing
    workers = readers = 0  # Threads that caption a batch each, or load a photo each.
    if captioner.device is not None and isinstance(photos, Sized):
        workers = workers_for(captioner.device, len(photos), batch_size)
        workers = min(workers, 1) if search.sample else workers
        readers = loading_workers(captioner.device) if are_files else 0
        if workers:
            batch_size = even_batch_size(len(photos), batch_size, workers)

    def read(name: str, source: ImageSource) -> tuple[Any, ...]:
        shown = image_name(source) if isinstance(source, (str, os.PathLike)) else name
        photo = preprocessing.load(source, "standard input" if name == "-" else shown)
        is_kept = isinstance(source, (str, os.PathLike, bytes))
        kept = source if is_kept else shrink(photo, DRAWN_SIDE)
        region = preprocessing.region(*original_size(photo))
        return name, kept, region, preprocessing.pixels(photo)

    def write(loaded: list[tuple[Any, ...]]) -> Iterator[Captioned]:
        if not loaded:
            return
        names, photos, regions, pixels = zip(*loaded, strict=True)
        captions = captioner.caption_pixels(numpy.stack(pixels), search, draws)
        if translate is not None:
            captions = translate(captions)
        for name, caption, *place in zip(names, captions, photos, regions, strict=True):
            yield Captioned(name, caption.of_photo(*place))

    batches = read_batches(photos, batch_size, read, readers)
    outcomes = in_background(lambda batch: with_results(batch, write), batches, workers)
    return chain.from_iterable(outcomes)


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
