"""The models, and the threads they run in; knows no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from captioner.caption import Caption, Captioner
from captioner.caption.captioner import Captioned
from captioner.decoding import SearchOptions, TranslationSearch
from captioner.render.region import Region, fit
from captioner.serve.admission import Admission
from captioner.serve.batching import Batcher
from captioner.serve.limits import Limits
from captioner.serve.overlays import draw
from captioner.text.languages import ENGLISH
from captioner.translate import Translation, Translator
from captioner.translate.translated_captions import translate_captions
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import original_size, with_original_size

UNDETERMINED = "und"
"""The tag of a language that is not known (ISO 639-2)."""

_READERS = 2
"""Photos decoded at a time, which bounds the memory of decoding."""

_LONGEST_SIDE = 1000
"""Pixels of a photo to be drawn on."""


@dataclass(frozen=True)
class Prepared:
    """A decoded photo.

    name: of its file. size: width and height in pixels, upright. region: left, top, right, bottom
    in those pixels, what the model sees. pixels: (3, size, size), the model's input. photo: with at
    most 1000 pixels a side, and its `original_size`; None unless it is to be drawn.
    """

    name: str
    size: tuple[int, int]
    region: Region
    pixels: Tensor
    photo: Image.Image | None


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
        self.admission = Admission(self.limits)

    def close(self) -> None:
        """Finish the work that waits, and end the threads."""
        self._readers.shutdown()
        self._decoders.close()
        self.captions.close()
        self.translations.close()
        self._painter.shutdown()

    async def prepare(self, content: bytes, name: str, drawn: bool) -> Prepared:
        """Decode a file in memory, in another process. drawn: keep the photo.

        Raises `UserError` as `DecodingPool.load` does.
        """
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
        """Translate sentences, in order, in batches with those of other requests.

        Raises `UserError` where the model cannot search like that.
        """
        key = search, language, search.sample and object()  # Sampling shares no batch.
        return await asyncio.wrap_future(self.translations.submit(sentences, key))

    async def draw(self, kind: str, drawings: Sequence[Captioned], strength: float) -> bytes:
        """The content of a file with captions drawn over their photos."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._painter, draw, kind, drawings, strength)

    @property
    def languages(self) -> list[str]:
        """Tags of the languages into which captions are translated: their translators attend."""
        others = (UNDETERMINED, ENGLISH)
        return [tag for tag, each in self.translators.items() if each.attends and tag not in others]

    def _prepare(self, content: bytes, name: str, drawn: bool) -> Prepared:
        preprocessing = self.captioner.preprocessing
        side = max(preprocessing.sufficient_side, _LONGEST_SIDE if drawn else 0)
        photo = self._decoders.load(content, name, self.limits.pixels, side)
        size = original_size(photo)
        small = None
        if drawn:
            small, _ = fit(photo, (0, 0, *photo.size), _LONGEST_SIDE, enlarge=False)
            small = with_original_size(small, size)
        return Prepared(name, size, preprocessing.region(*size), preprocessing(photo), small)

    def _caption(
        self, pixels: Sequence[Tensor], key: tuple[SearchOptions, str | None, object]
    ) -> list[Caption]:
        """A batch of photos, in the one thread that runs the captioner.

        key: the search, the language, and what keeps apart those that share no batch.
        """
        search, language, _ = key
        generator = search.generator(self.captioner.device)
        captions: list[Caption] = []
        for first in range(0, len(pixels), self._batch_size):
            batch = torch.stack(list(pixels[first : first + self._batch_size]))
            annotations = self.captioner.encode(batch)  # (B, L, D)
            captions += self.captioner.caption_annotations(annotations, search, generator=generator)
        if language in (None, ENGLISH):
            return captions
        return translate_captions(captions, self.translators[language], language)

    def _translate(
        self, sentences: Sequence[str], key: tuple[TranslationSearch, str, object]
    ) -> list[Translation]:
        """A batch of sentences, in the one thread that translates. key: as for `_caption`."""
        search, language, _ = key
        return self.translators[language].translate(sentences, search, batch_size=self._batch_size)
