"""The models, their threads, and batches of the requests that wait; knows no HTTP."""

import ctypes
import io
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner, Prepared, Translate, caption_photos
from captioner.caption.erase import with_erased
from captioner.decoding.options import AnySearch, SearchOptions, TranslationSearch
from captioner.errors import UserError
from captioner.render.page import html_page
from captioner.render.panels import encode_gif
from captioner.serve import UNDETERMINED, Limits
from captioner.serve.edits import Edits
from captioner.text.languages import ENGLISH
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translation import Translation
from captioner.translate.translator import Translator
from captioner.vision.decoding_process import DecodingPool
from captioner.vision.images import ignore, original_size
from captioner.vision.pixels import DIGEST

_DECODERS = 2  # Photos decoded at a time, which bounds the memory of decoding.
_LONGEST_SIDE = 1000  # Pixels of a photo to be drawn on.


class _Job(NamedTuple):
    """Items, what those of a batch have in common, and the future of their results."""

    items: Sequence[Any]
    key: tuple[AnySearch, str, object]
    results: Future[list[Any]]


class Batcher:
    """A queue of photos or sentences for one thread, which takes all jobs that fit together.

    No job waits for a batch to fill, and batches grow with the load.

    work: takes items, the search and the language; returns one result an item, in order.
    batch_size: most items of a batch of several jobs; a larger job is not batched with others.
    """

    def __init__(self, work: Callable[[list[Any], Any, str], list[Any]], batch_size: int) -> None:
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        self._work = work
        self._batch_size = batch_size
        self._thread = ThreadPoolExecutor(1)
        self.jobs: deque[_Job] = deque()

    def submit(self, items: Sequence[Any], search: AnySearch, language: str) -> Future[list[Any]]:
        """Queue items; returns the future of their results, which may be cancelled.

        Jobs of one search and language share batches, but samples do not: a seed gives the same.
        """
        results: Future[list[Any]] = Future()
        self.jobs.append(_Job(items, (search, language, search.sample and object()), results))
        self._thread.submit(self._run)  # Finds no job if an earlier call has taken all.
        return results

    def close(self) -> None:
        """Finish the queue and end the thread."""
        self._thread.shutdown()

    def _run(self) -> None:
        batch: list[_Job] = []
        while self.jobs:
            job = self.jobs[0]
            size = sum(len(queued.items) for queued in (*batch, job))
            if batch and (size > self._batch_size or job.key != batch[0].key):
                break
            self.jobs.popleft()
            if job.results.set_running_or_notify_cancel():  # Cannot be cancelled any more.
                batch.append(job)
        if not batch:
            return
        try:
            search, language, _ = batch[0].key
            items = [item for job in batch for item in job.items]
            results = iter(self._work(items, search, language))
            for job in batch:
                job.results.set_result(list(islice(results, len(job.items))))
            with suppress(OSError, AttributeError, TypeError):  # Only glibc keeps freed memory.
                ctypes.CDLL(None).malloc_trim(0)
        except Exception as error:
            for job in batch:
                job.results.set_exception(error)


class Service:
    """Captions and translates, in a thread each.

    batch_size: photos or sentences in a batch. `captions`, `translations` and `tests` (by
        erasing) are the queues.
    translators: by the tag of the language that each writes, `UNDETERMINED` if it is not known.
    title: heading of the page. edits: where people's captions are kept.
    """

    def __init__(
        self,
        captioner: Captioner,
        translators: Mapping[str, Translator] | None = None,
        limits: Limits | None = None,
        batch_size: int = 32,
        title: str = "",
        edits: Edits | None = None,
    ) -> None:
        self.title = title
        self.edits = edits
        self.captioner = replace(captioner, load_translation=self._translation)
        self.translators = dict(translators or {})
        self.limits = limits or Limits()
        self._batch_size = batch_size
        self.captions = Batcher(self._caption, batch_size)
        self.translations = Batcher(self._translate, batch_size)
        self.tests = Batcher(self._erase, batch_size=1)
        self._decoders = DecodingPool(_DECODERS, self.limits.decoding_seconds)

    def close(self) -> None:
        """Finish the work that waits, and end the threads."""
        self._decoders.close()
        self.captions.close()
        self.translations.close()
        self.tests.close()

    @property
    def languages(self) -> list[str]:
        """Tags of the languages into which captions are translated: their translators attend."""
        attending = [tag for tag, translator in self.translators.items() if translator.attends]
        return [tag for tag in attending if tag not in (UNDETERMINED, ENGLISH)]

    def prepare(self, file: BinaryIO, name: str, drawn: bool) -> Prepared:
        """Decode a file in memory, in another process. drawn: with up to 1000 pixels a side."""
        preprocessing = self.captioner.preprocessing
        file.seek(0)
        load = partial(self._decoders.load, file.read(), name, maximum_pixels=self.limits.pixels)
        photo = load(sufficient_side=preprocessing.sufficient_side, has_digest=True)
        digest, pixels = photo.info[DIGEST], preprocessing.pixels(photo)
        if drawn and photo.size != original_size(photo):
            photo = load(sufficient_side=_LONGEST_SIDE, thumbnail=_LONGEST_SIDE)
        photo.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        photo.info[DIGEST] = digest
        return Prepared(name, photo, preprocessing.region(*original_size(photo)), pixels)

    def _caption(self, photos: list[Prepared], search: SearchOptions, language: str) -> list[Any]:
        translate = self.captioner.translation(language, search)
        named = ((photo.name, photo) for photo in photos)
        return [
            *caption_photos(self.captioner, named, search, self._batch_size, translate, note=ignore)
        ]

    def _erase(self, captions: list[Any], search: SearchOptions, language: str) -> list[Any]:
        return [*with_erased(replace(self.captioner, search=search), captions)]

    def _translation(self, language: str, translator: None) -> Translate:
        return partial(translate_captions, translator=self.translators[language], language=language)

    def _translate(
        self, sentences: list[str], search: TranslationSearch, language: str
    ) -> list[Translation]:
        return self.translators[language].translate(sentences, search, batch_size=self._batch_size)

    def draw(self, kind: str, captions: Sequence[Caption], strength: float) -> bytes:
        """The content of a file with captions drawn over their photos: several for "html"."""
        if kind == "html":
            items = [caption.page_item(caption.name or "") for caption in captions]
            return html_page(items, strength, self.title).encode("utf-8")
        caption = captions[0]
        if kind == "gif":
            return encode_gif(caption.frames(strength))
        buffer = io.BytesIO()
        caption.panels(caption.name or "", strength).save(buffer, format="PNG")
        return buffer.getvalue()
