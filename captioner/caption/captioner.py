"""The captioner: captions photos, one by one or in batches, whatever computes its networks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from PIL import Image

from captioner.arrays import Array, Generator, Values
from captioner.backends.protocol import (
    CaptionBackend,
    Sentence,
    Words,
    check_search,
    new_generator,
)
from captioner.caption.caption import DRAWN_SIDE, Caption, fitting, sentence
from captioner.caption.cautious import cautious_caption
from captioner.caption.confidence import Confidence, sure_nouns
from captioner.caption.erase import erased_words
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
from captioner.text.keywords import keywords_of_text
from captioner.text.languages import (
    ENGLISH,
    is_english,
    language_of,
    language_tag,
    plain_text,
)
from captioner.text.tokenizer import tokenize
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
    pixels: Array
    status: os.stat_result | None = None  # Of its file, before it was read.

    def captioned(self, caption: Caption) -> Caption:
        """The caption of these pixels, with the photo."""
        return replace(caption.of_photo(self.photo, self.region, self.name), status=self.status)


@dataclass(repr=False, eq=False)
class Captioner:
    """Captions photos; see `captioner.load`.

    backend: computes the networks. search: the default options. confidence: of a calibrated model
        (`captioner calibrate`). card: the text of the model card. load_translation: gives what
        translates captions into a language, without what means some English words.
    """

    backend: CaptionBackend
    search: SearchOptions = field(default_factory=SearchOptions)
    confidence: Confidence | None = None
    card: str = ""
    load_translation: Callable[..., Translate] | None = None

    def __post_init__(self) -> None:
        for name in dir(CaptionBackend):
            if not name.startswith("_") and not hasattr(self.backend, name):
                raise UserError(f"{type(self.backend).__name__} lacks {name!r}: see CaptionBackend")

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

    def annotations(self, photos: Any) -> Values:
        """Photos, as `caption` takes them -> annotation vectors (B, L, D); one photo is a batch."""
        sources = [photos] if _is_one_photo(photos) else photos
        loaded = map(self.preprocessing.load, sources)
        return self.backend.encode(np.stack([self.preprocessing.pixels(each) for each in loaded]))

    def explain(self, photos: Any, captions: str | Iterable[str], batch_size: int = 16) -> Any:
        """Where the model looks, and what it expects, when it is fed a given caption.

        photos: as `caption` takes them. captions: text, split into words as training does: one of a
            photo gives one caption, several a list; of a list of photos, one each, in order.

        The captions can be drawn as any other; they have no confidence. Warns of words that the
        model lacks, which are fed and scored as the unknown-word token, as in training.
        """
        are_several = isinstance(captions, Iterable) and not isinstance(captions, str)
        texts: list[Any] = [*captions] if are_several else [captions]
        for number, text in enumerate(texts, start=1):
            if not isinstance(text, str):
                kind = type(text).__name__
                raise UserError(f"captions: number {number} is of the type {kind}, not a text")
        sources = [photos] * len(texts) if _is_one_photo(photos) else list(photos)
        if len(sources) != len(texts):
            raise UserError(f"{len(texts)} captions are given for {len(sources)} photos")
        named = [(photo_name(source), source) for source in sources]
        explained = caption_photos(self, named, batch_size=batch_size, given=texts)
        return shape_as_given(texts, isinstance(captions, str), explained, on_error="raise")

    def erase(self, photo: ImageSource, caption: str | None = None) -> Caption:
        """Caption a photo and test its maps: `Caption.erased` says what they are worth.

        For each content word, the places that hold half of its map are blurred and the same words
        are scored again; so are as many places elsewhere. A word that depends on what its map
        shows loses more by the first. See `captioner.caption.erase`.

        caption: a given one, as `explain` takes it; by default the search's.
        """
        if not _is_one_photo(photo):
            raise UserError("erase takes one photo, not several")
        captioned = self.caption(photo) if caption is None else self.explain(photo, caption)
        return replace(captioned, erased=erased_words(self, captioned))

    def caption_annotations(
        self,
        annotations: Values,
        search: SearchOptions | None = None,
        generator: Generator = None,
        given: Sequence[Words] | None = None,
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) -> captions, in order.

        search: in place of the model's own. generator: of samples, by default a new one.
        given: the words of a caption for each, of which the search may find nothing else. Their
            log-probabilities and maps are those of other captions, up to rounding.
        """
        if given is not None:
            return self._forced(annotations, given)
        search = search or self.search
        check_search(self.backend, search)
        if not len(annotations):
            return []
        generator = generator or new_generator(self.backend, search)
        captions = []
        least = self.confidence.unsure_below if self.confidence else 0.0
        for sentences in self.backend.search(annotations, search, generator):
            best = fitting(self._ranked(sentences, search), search)[: search.n_best]
            best = [replace(each, keywords=sure_nouns(each, least)) for each in best]
            captions.append(replace(best[0], alternatives=tuple(best[1:])))
        return captions

    def _forced(self, annotations: Values, given: Sequence[Words]) -> list[Caption]:
        if len(given) != len(annotations):
            raise UserError(f"{len(given)} captions are given for {len(annotations)} photos")
        for words in given:
            if isinstance(words, str) or not words:
                raise UserError(f"the given caption {words!r} has no words, or is no list of them")
        scored = map(self._caption, self.backend.teacher_forced(annotations, given))
        return [replace(each, given=True, keywords=sure_nouns(each, 0.0)) for each in scored]

    def _ranked(self, sentences: Sequence[Sentence], search: SearchOptions) -> list[Caption]:
        """The captions of a photo, best first but cut ones last; at least `n_best`."""
        if not (search.cautious or search.truth_weight or search.maximum_characters):
            sentences = sentences[: search.n_best]
        captions = list(map(self._caption, sentences))
        confidence, weight = self.confidence, search.truth_weight
        if search.cautious and (confidence is None or confidence.words is None):
            raise UserError("'cautious' needs a model with word confidences: captioner calibrate")
        if confidence is None:
            return captions
        given = len(tokenize(search.begin))
        captions = confidence.judge(captions, given)
        if weight:
            captions = [
                replace(each, score=(each.score or 0) + weight * confidence.likely_truth(each))
                for each in captions
            ]
            pairs = zip(sentences, captions, strict=True)
            order = sorted(pairs, key=lambda pair: (pair[0].cut, -(pair[1].score or 0)))
            captions = [caption for _, caption in order]
        if search.cautious:
            chosen = cautious_caption(captions, confidence.cautious, given)
            captions = [chosen, *(each for each in captions if each.text != chosen.text)]
        return captions

    def _caption(self, given: Sentence) -> Caption:
        attention = given.attention  # (T, L), or (T, rows, columns) of this photo's own maps
        if attention.ndim == 2:
            attention = attention.reshape(-1, *self.map_shape)
        return Caption(
            text=sentence(given.words) if given.text is None else given.text,
            words=tuple(given.words),
            log_probability=sum(given.log_probabilities),
            word_log_probabilities=tuple(given.log_probabilities[: len(given.words)]),
            attention=attention,
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
        search: SearchOptions | None = None,
        **options: Any,
    ) -> Any:
        """Caption a photo, or photos in order.

        photos: one gives one caption, a collection a list, and an iterator an iterator, which reads
            it batch by batch. A photo is a path, the content of a file, a binary file, a Pillow
            image, a NumPy array (H, W, 3) or a tensor (3, H, W) of uint8 or floats in [0, 1];
            a grey one is (H, W).
        on_error: `raise` raises `UserError` for a photo that cannot be read; `skip` gives a
            `Failed` with the reason in place of its caption.
        language: of the captions, such as "de" or "fr"; by default English.
        search: in place of the model's own. options: its fields, such as `beam=10` or `n_best=3`,
            over it.
        """
        one = _is_one_photo(photos)
        named: Iterable[tuple[str, ImageSource]] = (
            (photo_name(photo, "the image" if one else f"image {number} of the list"), photo)
            for number, photo in enumerate([photos] if one else photos, start=1)
        )
        if isinstance(photos, Sized) and not one:
            named = list(named)
        if not isinstance(search, SearchOptions | None):
            kind = type(search).__name__
            raise UserError(f"search is of the type {kind}, not SearchOptions; give beam=2 alone")
        search = (search or self.search).override(**options)
        translate = self.translation(language, search)
        captions = caption_photos(self, named, search, batch_size, translate)
        return shape_as_given(photos, one, captions, on_error)

    def translation(
        self, language: str | None, search: SearchOptions, translator: str | None = None
    ) -> Translate | None:
        """What translates captions of a search; None into English. See `load_translation`."""
        tag = language_tag(language or ENGLISH, "language")
        if is_english(tag):
            return None
        if self.load_translation is None:
            raise UserError("captions are in English: captioner.load gives one that translates")
        search.refuse_translation()
        return self.load_translation(tag, translator)

    def lacking_sentence(self, search: SearchOptions) -> str:
        """Names the words of `without` that the model lacks; "" without any."""
        lacking = self.backend.unknown(search.without.replace(",", " ").split())
        if not lacking:
            return ""
        return f"'without' changes nothing for words that the model lacks: {', '.join(lacking)}"


def caption_photos(
    captioner: Captioner,
    photos: Iterable[tuple[str, ImageSource | Prepared]],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    translate: Translate | None = None,
    decoding_seconds: float | None = None,
    given: Sequence[str] | None = None,
    note: Callable[[str], None] = warnings.warn,
) -> Iterator[Caption | Failed]:
    """Caption photos in order; of a list, several batches at once, while others are read.

    Everything that captions photos does it here: Python, commands, the server, evaluation.

    photos: their names and sources. `-` is the name of standard input. search: the captioner's own
        by default. decoding_seconds: limit for a photo that is large or slow to decode; 20 by
        default. given: a caption for each photo, scored in place of a search; see
        `Captioner.explain`. note: takes a sentence that names words that the model lacks.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    search = search or captioner.search
    backend = captioner.backend
    check_search(backend, search)
    generator = new_generator(backend, search)
    if lacking := captioner.lacking_sentence(search):
        note(lacking)
    if given is not None:
        _check_given(backend, given, note)
    workers = readers = 0  # Threads that caption a batch each, or load a photo each.
    if isinstance(photos, Sized):
        most = 1 if search.sample else MOST_WORKERS
        workers, batch_size = share_out(backend.threads, len(photos), batch_size, most)
        captioner = replace(captioner, backend=backend.for_workers(workers))
        # An open image may be in a list twice, and only one thread may load it.
        if backend.device is not None and not any(_is_open(source) for _, source in photos):
            readers = loading_workers(backend.device)

    def prepare(name: str, item: tuple[ImageSource | Prepared, str]) -> tuple[Prepared, str]:
        source, text = item
        if isinstance(source, Prepared):
            return source, text
        shown = "standard input" if name == "-" else name
        if isinstance(source, (str, os.PathLike)) and name != "-":
            shown = photo_name(source)
        status = source_status(source)
        preprocessing = captioner.preprocessing
        photo = preprocessing.load(source, shown, decoding_seconds)
        if not isinstance(source, (str, os.PathLike, bytes)):
            source = photo.reduce(max(1, max(photo.size) // DRAWN_SIDE))
        region = preprocessing.region(*original_size(photo))
        return Prepared(name, source, region, preprocessing.pixels(photo), status), text

    def caption_batch(batch: list[tuple[Prepared, str]]) -> Iterable[Caption]:
        if not batch:
            return ()
        loaded, texts = zip(*batch, strict=True)
        pixels = np.stack([photo.pixels for photo in loaded])  # (B, 3, size, size)
        annotations = captioner.backend.encode(pixels)  # (B, L, D)
        words = None if given is None else [tokenize(text) for text in texts]
        captions = captioner.caption_annotations(annotations, search, generator, words)
        if given is not None:
            captions = list(map(_as_typed, captions, texts))
        captions = translate(captions) if translate else captions
        if search.sentence and given is None:
            captions = [each.with_full_stop() for each in captions]
        return map(Prepared.captioned, loaded, captions)

    pairs = zip(photos, repeat("") if given is None else given, strict=False)
    items = ((name, (source, text)) for (name, source), text in pairs)
    return outcomes_of(items, batch_size, prepare, caption_batch, readers, workers)


def _check_given(
    backend: CaptionBackend, given: Sequence[str], note: Callable[[str], None]
) -> None:
    """Refuse a given caption without words; note words that the model lacks."""
    words = [tokenize(text) for text in given]
    if [] in words:
        raise UserError(f"the given caption {given[words.index([])]!r} has no words")
    lacking = backend.unknown(chain.from_iterable(words))
    for text, each in zip(given, words, strict=True):
        if lacking and language_of(each) != ENGLISH:
            raise UserError(f"the given caption {text!r} is not in English, as captions are scored")
    if lacking:
        note(f"the model does not know {', '.join(lacking)}: scored as its unknown-word token")


def _as_typed(caption: Caption, text: str) -> Caption:
    return replace(caption, text=plain_text(text), keywords=keywords_of_text(text))


def _is_open(source: object) -> bool:
    return isinstance(source, Image.Image) or hasattr(source, "read")


def _is_one_photo(photos: Values) -> bool:
    """Whether this is one photo; True also for other types, which `load_image` refuses."""
    if isinstance(photos, (str, bytes, bytearray, memoryview, os.PathLike, Image.Image)):
        return True
    if hasattr(photos, "dtype"):  # An array of one dimension holds paths, one of four is a batch.
        return len(photos.shape) in (0, 2, 3)
    return hasattr(photos, "read") or not isinstance(photos, Iterable)
