"""What the server does, apart from HTTP: captions, drawings, translations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from PIL import Image
from torch import Tensor

from captioner.caption import Caption, Captioner
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.render.region import Region
from captioner.serve.batching import Batcher
from captioner.serve.limits import Admission, Limits
from captioner.serve.overlays import Drawing, Format
from captioner.serve.photos import Prepared, prepare
from captioner.serve.uploads import Upload
from captioner.translate import Translation, TranslationSearch, Translator

_READERS = 2
"""Photos that are decoded at a time: what they take in memory is bounded with it."""

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Failed:
    """A photo that could not be read, and one sentence that says why."""

    name: str
    reason: str


class Service:
    """The models, the threads they work in, and the count of what is waiting.

    batch_size: photos or sentences that are worked on together. `captions` is the queue of photos.
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
        """Finish what was taken in, and end the threads."""
        self._readers.shutdown()
        self.captions.close()
        if self._translations is not None:
            self._translations.close()
        self._painter.shutdown()

    async def read(
        self, uploads: Sequence[Upload], keep: Callable[[Image.Image, Region], Kept]
    ) -> list[Prepared[Kept] | Failed]:
        """Decode photos, in order; see `captioner.serve.photos.prepare`."""
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(
                loop.run_in_executor(
                    self._readers, prepare, upload, self.captioner.preprocessing, self.limits, keep
                )
                for upload in uploads
            ),
            return_exceptions=True,
        )
        return [_read_or_failed(upload, each) for upload, each in zip(uploads, found, strict=True)]

    async def caption(
        self, photos: Sequence[Prepared[Kept]], search: SearchOptions
    ) -> list[Caption]:
        """Caption photos, in order, together with those of other requests.

        What is drawn is drawn for these photos alone, so that a seed gives the same each time.
        """
        if not photos:
            return []
        pixels = [photo.pixels for photo in photos]
        promise = self.captions.submit(pixels, search, alone=search.sample)
        return await asyncio.wrap_future(promise)

    async def translate(
        self, sentences: Sequence[str], search: TranslationSearch
    ) -> list[Translation]:
        """Translate sentences, in order, together with those of other requests.

        Raises `UserError` where the model cannot search like that.
        """
        assert self._translations is not None  # Asked only where there is a translator.
        promise = self._translations.submit(sentences, search, alone=search.sample)
        return await asyncio.wrap_future(promise)

    async def draw(self, file: Format, drawings: Sequence[Drawing], strength: float) -> bytes:
        """The content of a file in which captions are drawn over their photos."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._painter, file.draw, drawings, strength)

    def _expected_seconds(self) -> float:
        waits = [self.captions.expected_seconds]
        if self._translations is not None:
            waits.append(self._translations.expected_seconds)
        return max(waits)

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

        A processor reads them one by one: what a layer makes of one photo still fits into its
        cache, and of many does not. What is gained by a batch is gained in the beam search.
        """
        one_by_one = self.captioner.device.type == "cpu"
        batches = [each[None] for each in pixels] if one_by_one else [torch.stack(list(pixels))]
        return torch.cat([self.captioner.encode(batch) for batch in batches])

    def _translate(self, sentences: Sequence[str], search: TranslationSearch) -> list[Translation]:
        assert self.translator is not None
        return self.translator.translate(sentences, search, self._batch_size)


def _read_or_failed(
    upload: Upload, found: Prepared[Kept] | BaseException
) -> Prepared[Kept] | Failed:
    if isinstance(found, UserError):
        return Failed(upload.name, str(found))
    if isinstance(found, BaseException):
        raise found
    return found
