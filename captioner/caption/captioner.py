"""The captioner: captions photos, one by one or in batches, whatever computes its networks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from PIL import Image

from captioner.backends.protocol import CaptionBackend, Sentence, new_generator
from captioner.caption.caption import DRAWN_SIDE, Caption, sentence
from captioner.caption.cautious import cautious_caption
from captioner.caption.confidence import Confidence
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.outcomes import (
    MOST_WORKERS,
    Failed,
    loading_workers,
    outcomes_of,
    shape_as_given,
    share_out,
)
from captioner.render.overlay import Region
from captioner.text.languages import is_english, language_tag
from captioner.vision.images import ImageSource, original_size, photo_name
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.shards import source_status

Translate = Callable[[list[Caption]], list[Caption]]
"""Translates captions, such as `translate_captions` with its translator."""


class Prepared(NamedTuple):
    """A photo to draw on, and the region whose pixels (3, size, size) the model sees."""

    name: str
    photo: ImageSource
    region: Region
    pixels: np.ndarray[Any, Any]
    status: os.stat_result | None = None  # Of its file, before it was read.

    def captioned(self, caption: Caption) -> Caption:
        """The caption of these pixels, with the photo."""
        return replace(caption.of_photo(self.photo, self.region, self.name), status=self.status)


@dataclass(repr=False, eq=False)
class Captioner:
    """Captions photos; see `captioner.load`.

    backend: computes the networks. search: the default options. confidence: of a calibrated model
        (`captioner calibrate`). card: the text of the model card. load_translation: gives what
        translates captions into a language.
    """

    backend: CaptionBackend
    search: SearchOptions = field(default_factory=SearchOptions)
    confidence: Confidence | None = None
    card: str = ""
    load_translation: Callable[[str], Translate] | None = None

    def __repr__(self) -> str:
        rows, columns = self.map_shape
        return f"Captioner({self.backend!r}, maps of {rows}x{columns}, by {self.engine})"

    @property
    def engine(self) -> str:
        """What computes it: `graphs`, `torch` or another backend."""
        return self.backend.engine

    @property
    def preprocessing(self) -> Preprocessing:
        """From photos to the pixels that the model sees."""
        return self.backend.preprocessing

    @property
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of an attention map."""
        return self.backend.map_shape

    def annotations(self, photos: Sequence[Image.Image]) -> Any:
        """Photos from `load_image` -> annotation vectors (B, L, D)."""
        return self.backend.encode(np.stack([self.preprocessing.pixels(each) for each in photos]))

    def teacher_forced(self, annotations: Any, captions: Sequence[Sequence[str]]) -> list[Caption]:
        """Annotation vectors (B, L, D) and the words of a caption for each -> captions.

        Their log-probabilities and maps are those of the search, up to rounding. A word that the
        vocabulary lacks is fed and scored as the unknown-word token, as in training.
        """
        return [self._caption(each) for each in self.backend.teacher_forced(annotations, captions)]

    def caption_annotations(
        self, annotations: Any, search: SearchOptions | None = None, generator: Any = None
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) -> captions, in order.

        search: in place of the model's own. generator: of samples, by default a new one.
        """
        search = search or self.search
        if not len(annotations):
            return []
        generator = generator or new_generator(self.backend, search)
        captions = []
        for sentences in self.backend.search(annotations, search, generator):
            best = self._ranked(sentences, search)[: search.n_best]
            captions.append(replace(best[0], alternatives=tuple(best[1:])))
        return captions

    def caption_pixels(
        self, pixels: np.ndarray[Any, Any], search: SearchOptions, generator: Any = None
    ) -> list[Caption]:
        """Preprocessed photos (B, 3, size, size), uint8 -> captions, in order."""
        return self.caption_annotations(self.backend.encode(pixels), search, generator)

    def _ranked(self, sentences: Sequence[Sentence], search: SearchOptions) -> list[Caption]:
        """The captions of a photo, best first but cut ones last; at least `n_best`."""
        if not (search.cautious or search.truth_weight):
            sentences = sentences[: search.n_best]
        captions = list(map(self._caption, sentences))
        confidence, weight = self.confidence, search.truth_weight
        if search.cautious and (confidence is None or confidence.words is None):
            raise UserError("'cautious' needs a model with word confidences: captioner calibrate")
        if confidence is None:
            return captions
        captions = confidence.judge(captions)
        if weight:
            captions = [
                replace(each, score=(each.score or 0) + weight * confidence.likely_truth(each))
                for each in captions
            ]
            pairs = zip(sentences, captions, strict=True)
            order = sorted(pairs, key=lambda pair: (pair[0].cut, -(pair[1].score or 0)))
            captions = [caption for _, caption in order]
        if search.cautious:
            is_sentence = cache(self.backend.is_sentence)
            chosen = cautious_caption(captions, is_sentence, confidence.cautious)
            captions = [chosen, *(each for each in captions if each.text != chosen.text)]
        return captions

    def _caption(self, given: Sentence) -> Caption:
        return Caption(
            text=sentence(given.words) if given.text is None else given.text,
            words=tuple(given.words),
            log_probability=sum(given.log_probabilities),
            word_log_probabilities=tuple(given.log_probabilities[: len(given.words)]),
            attention=given.attention.reshape(-1, *self.map_shape),
            score=given.score,
        )

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

        photos: one gives one caption, a collection a list, and an iterator an iterator, which reads
            it batch by batch. A photo is a path, the content of a file, a binary file, a Pillow
            image, a NumPy array (H, W, 3) or a tensor (3, H, W) of uint8 or floats in [0, 1];
            a grey one is (H, W).
        on_error: `raise` raises `UserError` for a photo that cannot be read; `skip` gives a
            `Failed` with the reason in place of its caption.
        language: of the captions, such as "de" or "fr"; by default English.
        search: fields of `SearchOptions`, such as `beam=10` or `n_best=3`, over the model's own.
        """
        one = _is_one_photo(photos)
        is_list = isinstance(photos, Sized) and not one
        named = (
            (photo_name(photo, "the image" if one else f"image {number} of the list"), photo)
            for number, photo in enumerate([photos] if one else photos, start=1)
        )
        captions = caption_photos(
            self,
            list(named) if is_list else named,
            self.search.override(**search),
            batch_size,
            translate=self._translation(language),
            # An open image may be in a list twice, and only one thread may load it.
            are_files=is_list and all(isinstance(photo, (str, os.PathLike)) for photo in photos),
        )
        return shape_as_given(photos, one, captions, on_error)

    def _translation(self, language: str | None) -> Translate | None:
        if language is None:
            return None
        tag = language_tag(language, "language")
        if is_english(tag):
            return None
        if self.load_translation is None:
            reason = "captions in English only: captioner.load gives one that translates"
            raise UserError(f"this model {reason}")
        return self.load_translation(tag)


def caption_photos(
    captioner: Captioner,
    photos: Iterable[tuple[str, ImageSource]],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    translate: Translate | None = None,
    are_files: bool = True,
    decoding_seconds: float | None = None,
) -> Iterator[Caption | Failed]:
    """Caption photos in order; of a list, several batches at once, while others are read.

    photos: their names and sources. `-` is the name of standard input. search: the captioner's own
        by default. are_files: whether several threads may load photos. decoding_seconds: limit for
        a photo that is large or slow to decode; 20 by default.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    search = search or captioner.search
    backend = captioner.backend
    generator = new_generator(backend, search)
    preprocessing = captioner.preprocessing
    workers = readers = 0  # Threads that caption a batch each, or load a photo each.
    if isinstance(photos, Sized):
        most = 1 if search.sample else MOST_WORKERS
        workers, batch_size = share_out(backend.threads, len(photos), batch_size, most)
        captioner = replace(captioner, backend=backend.for_workers(workers))
        if backend.device is not None and are_files:
            readers = loading_workers(backend.device)

    def prepare(name: str, source: ImageSource) -> Prepared:
        shown = "standard input" if name == "-" else name
        if isinstance(source, (str, os.PathLike)) and name != "-":
            shown = photo_name(source)
        status = source_status(source)
        photo = preprocessing.load(source, shown, decoding_seconds)
        if not isinstance(source, (str, os.PathLike, bytes)):
            source = photo.reduce(max(1, max(photo.size) // DRAWN_SIDE))
        width, height = original_size(photo)
        region = preprocessing.region(width, height)
        return Prepared(name, source, region, preprocessing.pixels(photo), status)

    def caption_batch(photos: list[Prepared]) -> Iterable[Caption]:
        if not photos:
            return ()
        pixels = np.stack([photo.pixels for photo in photos])  # (B, 3, size, size)
        captions = captioner.caption_pixels(pixels, search, generator)
        return map(Prepared.captioned, photos, translate(captions) if translate else captions)

    return outcomes_of(photos, batch_size, prepare, caption_batch, readers, workers)


def _is_one_photo(photos: Any) -> bool:
    """Whether this is one photo; True also for other types, which `load_image` refuses."""
    if isinstance(photos, (str, bytes, bytearray, memoryview, os.PathLike, Image.Image)):
        return True
    if hasattr(photos, "dtype"):  # An array of one dimension holds paths, one of four is a batch.
        return len(photos.shape) in (0, 2, 3)
    return hasattr(photos, "read") or not isinstance(photos, Iterable)
