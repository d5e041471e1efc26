"""Captions photos, one by one or in batches. Without torch; a subclass runs networks."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import replace
from functools import cache
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from PIL import Image

from captioner.caption.caption import DRAWN_SIDE, Caption, sentence
from captioner.caption.cautious import cautious_caption
from captioner.caption.confidence import Confidence, likely_truth
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import ORDER, Constraints, ngram_keys
from captioner.decoding.search import Hypothesis
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
from captioner.text.languages import FUNCTION_WORDS, is_english, language_tag
from captioner.text.vocabulary import Vocabulary
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


class PhotoCaptioner(ABC):
    """Captions photos, however its networks are computed."""

    preprocessing: Preprocessing
    search: SearchOptions  # The default options.
    vocabulary: Vocabulary
    confidence: Confidence | None
    can_sample = True
    ngrams: Any = None  # Sorted keys of the n-grams that people wrote; see `Rules`.
    load_translation: Callable[[str], Translate] | None = None  # For a language, if there is any.

    @property
    @abstractmethod
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of an attention map."""

    @abstractmethod
    def encode(self, pixels: Any) -> Any:
        """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D)."""

    def encode_pixels(self, pixels: Any) -> Any:
        """Photos (B, 3, size, size), uint8 -> annotation vectors (B, L, D)."""
        return self.encode(self.preprocessing.normalise(pixels))

    def annotations(self, photos: Sequence[Image.Image]) -> Any:
        """Photos from `load_image` -> annotation vectors (B, L, D)."""
        return self.encode_pixels(np.stack([self.preprocessing.pixels(photo) for photo in photos]))

    def constraints(self, search: SearchOptions) -> Constraints:
        """The limits of a search of captions."""
        vocabulary = self.vocabulary
        function_words = sorted(FUNCTION_WORDS & set(vocabulary.words))
        return Constraints(
            search,
            forbidden=(vocabulary.pad, vocabulary.start, vocabulary.unknown),
            repeatable=tuple(vocabulary.encode(function_words)),
            ngrams=self.ngrams,
        )

    @abstractmethod
    def find_hypotheses(
        self, annotations: Any, search: SearchOptions, generator: Any
    ) -> Iterable[Sequence[Any]]:
        """Annotation vectors (B, L, D) -> the hypotheses of each photo, best first."""

    def caption_annotations(
        self, annotations: Any, search: SearchOptions | None = None, generator: Any = None
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) -> captions, in order.

        search: in place of the model's own. generator: of samples, by default `new_generator`.
        """
        search = search or self.search
        if not len(annotations):
            return []
        captions = []
        for hypotheses in self.find_hypotheses(annotations, search, generator):
            best = self._ranked(hypotheses, search)[: search.n_best]
            captions.append(replace(best[0], alternatives=tuple(best[1:])))
        return captions

    def _ranked(self, hypotheses: Sequence[Hypothesis], search: SearchOptions) -> list[Caption]:
        """The captions of a photo's hypotheses, best first but cut ones last; at least `n_best`."""
        if not (search.cautious or search.truth_weight):
            hypotheses = hypotheses[: search.n_best]
        captions = []
        for hypothesis in hypotheses:
            words = [self.vocabulary.words[token] for token in hypothesis.tokens]
            terms = hypothesis.token_log_probabilities
            captions.append(self._caption(words, terms, hypothesis.attention, hypothesis.score))
        if self.confidence is not None:
            captions = self.confidence.judge(captions)
        if search.truth_weight:
            scores = [
                hypothesis.score + search.truth_weight * likely_truth(caption)
                for hypothesis, caption in zip(hypotheses, captions, strict=True)
            ]
            rows = range(len(captions))
            order = sorted(rows, key=lambda row: (hypotheses[row].cut, -scores[row]))
            captions = [replace(captions[row], score=scores[row]) for row in order]
        if search.cautious:
            captions = self._cautious(captions)
        return captions

    def _cautious(self, captions: list[Caption]) -> list[Caption]:
        """The captions of a photo, the cautious one before them."""
        if self.confidence is None or self.confidence.words is None:
            raise UserError("'cautious' needs a model with word confidences: captioner calibrate")
        chosen = cautious_caption(captions, cache(self.is_sentence))
        return [chosen, *(caption for caption in captions if caption.text != chosen.text)]

    def is_sentence(self, words: tuple[str, ...]) -> bool:
        """Whether people wrote all n-grams of a caption; False of a model without n-grams."""
        if (ngrams := self.ngrams) is None:
            return False
        places = range(len(ngrams))
        before = ORDER - 1
        size = len(self.vocabulary)
        start, end = self.vocabulary.start, self.vocabulary.end
        tokens = [*[start] * before, *self.vocabulary.encode(words), end]
        for last in range(before, len(tokens)):
            key = ngram_keys(tokens[last - before : last + 1], size)
            place = bisect_left(places, key, key=lambda place: int(ngrams[place]))
            if place == len(ngrams) or int(ngrams[place]) != key:
                return False
        return True

    def _caption(
        self, words: Sequence[str], terms: Sequence[float], maps: Any, score: float | None = None
    ) -> Caption:
        """T words, T + 1 log-probabilities (the end's last), maps (T, L) -> a caption."""
        return Caption(
            text=sentence(words),
            words=tuple(words),
            log_probability=sum(terms),
            word_log_probabilities=tuple(terms[: len(words)]),
            attention=maps.reshape(-1, *self.map_shape),
            score=score,
        )

    @property
    def device(self) -> Any:
        """Torch's device, where it computes; None without torch."""
        return None

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a CPU that compute a batch; 1 of a GPU."""

    def for_workers(self, workers: int) -> PhotoCaptioner:
        """This captioner, for so many threads that caption a batch each; 0: the caller alone."""
        return self

    def new_generator(self, search: SearchOptions) -> Any:
        """The generator of the samples of all batches; None without sampling."""
        if not search.sample or self.device is None:
            return None
        from captioner.decoding.loop import make_generator

        return make_generator(search, self.device)

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
    captioner: PhotoCaptioner,
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
    generator = captioner.new_generator(search)
    preprocessing = captioner.preprocessing
    workers = readers = 0  # Threads that caption a batch each, or load a photo each.
    if isinstance(photos, Sized):
        most = 1 if search.sample else MOST_WORKERS
        workers, batch_size = share_out(captioner.threads, len(photos), batch_size, most)
        captioner = captioner.for_workers(workers)
        if captioner.device is not None and are_files:
            readers = loading_workers(captioner.device)

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
        annotations = captioner.encode_pixels(pixels)  # (B, L, D)
        captions = captioner.caption_annotations(annotations, search, generator)
        return map(Prepared.captioned, photos, translate(captions) if translate else captions)

    return outcomes_of(photos, batch_size, prepare, caption_batch, readers, workers)


def _is_one_photo(photos: Any) -> bool:
    """Whether this is one photo; True also for other types, which `load_image` refuses."""
    if isinstance(photos, (str, bytes, bytearray, memoryview, os.PathLike, Image.Image)):
        return True
    if hasattr(photos, "dtype"):  # An array of one dimension holds paths, one of four is a batch.
        return len(photos.shape) in (0, 2, 3)
    return hasattr(photos, "read") or not isinstance(photos, Iterable)
