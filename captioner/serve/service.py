"""The models, and the threads they run in; knows no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from PIL import Image
from torch import Tensor

from captioner.caption import Caption, Captioner
from captioner.decoding import SearchOptions, TranslationSearch
from captioner.errors import UserError
from captioner.render.region import Region
from captioner.serve.admission import Admission
from captioner.serve.batching import Batcher
from captioner.serve.limits import Limits
from captioner.serve.overlays import Drawing, Format
from captioner.serve.photos import Kept, Prepared, prepare
from captioner.translate import Translation, Translator

_READERS = 2
"""Photos decoded at a time, which bounds the memory of decoding."""


class Service:
    """Captions, translates and draws, in separate threads; batches waiting requests.

    batch_size: photos or sentences in a batch. `captions` is the queue of photos.
    """

    def __init__(
        self,
        captioner: Captioner,
        translator: Translator | None = None,
        limits: Limits | None = None,
        batch_size: int = 32,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        self.captioner = captioner
        self.translator = translator
        self.limits = limits or Limits()
        self._batch_size = batch_size
        self.captions = Batcher(self._caption, batch_size, "captions")
        self._translations = (
            None if translator is None else Batcher(self._translate, batch_size, "translations")
        )
        self._readers = ThreadPoolExecutor(_READERS, "photos")
        self._painter = ThreadPoolExecutor(1, "drawings")
        self.admission = Admission(self.limits, self._expected_seconds)

    def close(self) -> None:
        """Finish the work that waits, and end the threads."""
        self._readers.shutdown()
        self.captions.close()
        if self._translations is not None:
            self._translations.close()
        self._painter.shutdown()

    async def prepare(
        self, content: bytes, name: str, keep: Callable[[Image.Image, Region], Kept]
    ) -> Prepared[Kept]:
        """Decode a photo; see `captioner.serve.photos.prepare`."""
        preprocessing, most = self.captioner.preprocessing, self.limits.pixels
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._readers, prepare, content, name, preprocessing, most, keep
        )

    async def caption(
        self, photos: Sequence[Prepared[Kept]], search: SearchOptions
    ) -> list[Caption]:
        """Caption photos, in order, in batches with those of other requests.

        Sampling runs for these photos alone, so that a seed always gives the same captions.
        """
        pixels = [photo.pixels for photo in photos]
        return await asyncio.wrap_future(self.captions.submit(pixels, search, search.sample))

    async def translate(
        self, sentences: Sequence[str], search: TranslationSearch
    ) -> list[Translation]:
        """Translate sentences, in order, in batches with those of other requests.

        Raises `UserError` where the model cannot search like that.
        """
        assert self._translations is not None  # Called only where there is a translator.
        return await asyncio.wrap_future(
            self._translations.submit(sentences, search, search.sample)
        )

    async def draw(self, file: Format, drawings: Sequence[Drawing], strength: float) -> bytes:
        """The content of a file with captions drawn over their photos."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._painter, file.draw, drawings, strength)

    def _expected_seconds(self) -> float:
        queues = [self.captions, self._translations]
        return max(queue.expected_seconds for queue in queues if queue is not None)

    def _caption(self, pixels: Sequence[Tensor], search: SearchOptions) -> list[Caption]:
        """A batch of photos, in the one thread that runs the captioner."""
        generator = search.generator()
        captions: list[Caption] = []
        for first in range(0, len(pixels), self._batch_size):
            annotations = self._encode(pixels[first : first + self._batch_size])  # (B, L, D)
            captions += self.captioner.caption_annotations(annotations, search, generator=generator)
        return captions

    def _encode(self, pixels: Sequence[Tensor]) -> Tensor:
        """Preprocessed photos (3, size, size) -> annotation vectors (B, L, D).

        CPU: one by one, because a layer's output for one photo fits into the cache.
        """
        one_by_one = self.captioner.device.type == "cpu"
        batches = [each[None] for each in pixels] if one_by_one else [torch.stack(list(pixels))]
        return torch.cat([self.captioner.encode(batch) for batch in batches])

    def _translate(self, sentences: Sequence[str], search: TranslationSearch) -> list[Translation]:
        assert self.translator is not None
        return self.translator.translate(sentences, search, self._batch_size)
