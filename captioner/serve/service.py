"""The models, the threads they run in, and the batches of requests that wait; knows no HTTP."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy
from PIL import Image

from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.photos import Captioned
from captioner.decoding.options import SearchOptions, TranslationSearch
from captioner.render.animation import encode_gif
from captioner.render.page import html_page
from captioner.render.region import Region, fit
from captioner.serve import Limits
from captioner.text.languages import ENGLISH
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translation import Translation
from captioner.translate.translator import Translator
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import original_size, with_original_size

UNDETERMINED = "und"
"""The tag of a language that is not known (ISO 639-2)."""

_READERS = 2
"""Photos decoded at a time, which bounds the memory of decoding."""

MEDIA_TYPES = {"png": "image/png", "gif": "image/gif", "html": "text/html; charset=utf-8"}
"""Of files, by the ending of their names."""

_LONGEST_SIDE = 1000
"""Pixels of a photo to be drawn on."""


@dataclass(frozen=True)
class Prepared:
    """A decoded photo.

    size: width and height in pixels, upright. region: left, top, right, bottom in those pixels,
    what the model sees. pixels: `Preprocessing.pixels`. photo: with at most 1000 pixels a side, and
    its `original_size`; None unless it is to be drawn.
    """

    name: str
    size: tuple[int, int]
    region: Region
    pixels: numpy.ndarray[Any, Any]
    photo: Image.Image | None


@dataclass
class _Job:
    """Items submitted together, and the future of their results."""

    items: Sequence[Any]
    key: Any
    done: Future[list[Any]] = field(default_factory=Future)


class Batcher:
    """A queue of work, whose one thread takes all that fit together, up to the batch size.

    No job waits for a batch to fill, and batches grow with the load.

    work: takes items and their common key; returns one result an item, in order. Called from one
        thread only.
    batch_size: most items of a batch of several jobs; a larger job is not batched with others.
    jobs: those that wait.
    """

    def __init__(
        self, work: Callable[[list[Any], Any], list[Any]], batch_size: int, name: str
    ) -> None:
        self._work = work
        self._batch_size = batch_size
        self._thread = ThreadPoolExecutor(1, name)
        self.jobs: deque[_Job] = deque()

    def submit(self, items: Sequence[Any], key: Any) -> Future[list[Any]]:
        """Queue items; returns the future of their results, in order.

        key: only jobs of one key share a batch. A future cancelled before its turn is skipped. An
        error of `work` ends the futures of its batch.
        """
        job = _Job(items, key)
        self.jobs.append(job)
        self._thread.submit(self._run)  # Finds no job if an earlier call has taken all.
        return job.done

    def close(self) -> None:
        """Finish the queue and end the thread."""
        self._thread.shutdown()

    def _run(self) -> None:
        batch: list[_Job] = []
        items: list[Any] = []
        while self.jobs:
            job = self.jobs[0]
            is_full = len(items) + len(job.items) > self._batch_size
            if batch and (is_full or job.key != batch[0].key):
                break
            self.jobs.popleft()
            if job.done.set_running_or_notify_cancel():  # Cannot be cancelled any more.
                batch.append(job)
                items += job.items
        if not batch:
            return
        try:
            results = self._work(items, batch[0].key)
        except Exception as error:
            for job in batch:
                job.done.set_exception(error)
            return
        for job in batch:
            job.done.set_result(results[: len(job.items)])
            results = results[len(job.items) :]


class Service:
    """Captions, translates and draws, in separate threads; batches waiting requests.

    batch_size: photos or sentences in a batch. `captions` and `translations` are the queues.
    translators: by the tag of the language that each writes, `UNDETERMINED` if it is not known.
    """

    def __init__(
        self,
        captioner: Captioner,
        translators: Mapping[str, Translator] | None = None,
        limits: Limits | None = None,
        batch_size: int = 32,
    ) -> None:
        self.captioner = captioner
        self.translators = dict(translators or {})
        self.limits = limits or Limits()
        self._batch_size = batch_size
        self.captions = Batcher(self._caption, batch_size, "captions")
        self.translations = Batcher(self._translate, batch_size, "translations")
        self._readers = ThreadPoolExecutor(_READERS, "photos")
        self._decoders = DecodingPool(_READERS, self.limits.decoding_seconds)
        self._painter = ThreadPoolExecutor(1, "drawings")

    def close(self) -> None:
        """Finish the work that waits, and end the threads."""
        self._readers.shutdown()
        self._decoders.close()
        self.captions.close()
        self.translations.close()
        self._painter.shutdown()

    async def prepare(self, content: bytes, name: str, drawn: bool) -> Prepared:
        """Decode a file in memory, in another process. drawn: keep the photo."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._prepare, content, name, drawn)

    async def caption(
        self,
        photos: Sequence[Prepared],
        search: SearchOptions,
        language: str | None = None,
    ) -> list[Caption]:
        """Caption photos, in order, in batches with those of other requests.

        language: one of `languages`, in which the captions then are; None is English.
        Sampling runs for these photos alone, so that a seed always gives the same captions.
        """
        pixels = [photo.pixels for photo in photos]
        key = search, language, search.sample and object()  # Sampling shares no batch.
        return await asyncio.wrap_future(self.captions.submit(pixels, key))

    async def translate(
        self, sentences: Sequence[str], search: TranslationSearch, language: str
    ) -> list[Translation]:
        """Translate sentences, in order, in batches with those of other requests."""
        key = search, language, search.sample and object()  # Sampling shares no batch.
        return await asyncio.wrap_future(self.translations.submit(sentences, key))

    async def draw(self, kind: str, drawings: Sequence[Captioned], strength: float) -> bytes:
        """The content of a file with captions drawn over their photos: several for "html"."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._painter, _draw, kind, drawings, strength)

    @property
    def languages(self) -> list[str]:
        """Tags of the languages into which captions are translated: their translators attend."""
        others = (UNDETERMINED, ENGLISH)
        return [tag for tag, each in self.translators.items() if each.attends and tag not in others]

    def _prepare(self, content: bytes, name: str, drawn: bool) -> Prepared:
        preprocessing = self.captioner.preprocessing
        load = partial(self._decoders.load, content, name, maximum_pixels=self.limits.pixels)
        photo = load(sufficient_side=preprocessing.sufficient_side)
        size, pixels, small = original_size(photo), preprocessing.pixels(photo), None
        if drawn:
            if photo.size != size and preprocessing.sufficient_side < _LONGEST_SIDE:
                photo = load(sufficient_side=_LONGEST_SIDE)  # More pixels than the model's.
            small, _ = fit(photo, (0, 0, *photo.size), _LONGEST_SIDE, enlarge=False)
            small = with_original_size(small, size)
        return Prepared(name, size, preprocessing.region(*size), pixels, small)

    def _caption(
        self,
        pixels: list[numpy.ndarray[Any, Any]],
        key: tuple[SearchOptions, str | None, object],
    ) -> list[Caption]:
        search, language, _ = key
        draws = self.captioner.source_of_draws(search)
        captions: list[Caption] = []
        for first in range(0, len(pixels), self._batch_size):
            batch = numpy.stack(pixels[first : first + self._batch_size])  # (B, 3, size, size)
            captions += self.captioner.caption_pixels(batch, search, draws)
        if language in (None, ENGLISH):
            return captions
        return translate_captions(captions, self.translators[language], language)

    def _translate(
        self, sentences: list[str], key: tuple[TranslationSearch, str, object]
    ) -> list[Translation]:
        search, language, _ = key
        return self.translators[language].translate(sentences, search, batch_size=self._batch_size)


def _draw(kind: str, drawings: Sequence[Captioned], strength: float) -> bytes:
    if kind == "html":
        items = [drawing.caption.page_item(drawing.name) for drawing in drawings]
        return html_page(items, strength).encode("utf-8")
    (drawing,) = drawings
    caption = drawing.caption
    if kind == "gif":
        return encode_gif(*caption.drawn(), strength=strength, doubt=caption.drawn_doubt)
    buffer = io.BytesIO()
    caption.panels(drawing.name, strength).save(buffer, format="PNG")
    return buffer.getvalue()
