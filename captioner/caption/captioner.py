"""The captioner: photos in, captions with attention maps out; one by one or in batches."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, tee
from typing import Any, Literal, NamedTuple, overload

import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioner import cpu
from captioner.background import in_background, workers_for
from captioner.caption.base import CaptionDecoder
from captioner.caption.caption import DRAWN_SIDE, Caption, sentence
from captioner.caption.confidence import Confidence
from captioner.decoding import SearchOptions, decode
from captioner.errors import UserError
from captioner.outcomes import Failed, read_batches, shape_as_given, with_results
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder
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

NamedPhoto = tuple[str, Callable[[], Image.Image]]
"""A photo's name and the function that loads it or raises `UserError`."""


class _Loaded(NamedTuple):
    """A photo, as kept for its drawing, and its pixels (3, size, size) for the encoder."""

    name: str
    photo: Image.Image
    pixels: Tensor


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


@dataclass(repr=False, eq=False)
class Captioner:
    """Encoder, decoder, vocabulary and preprocessing; see `captioner.load`.

    search: the default options. card: the text of the model card. confidence: of a calibrated model
        (`captioner calibrate`). trigrams: keys of the triples of tokens that people wrote, to which
        the search keeps; see `Constraints`.
    """

    encoder: Encoder
    decoder: CaptionDecoder
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    search: SearchOptions = field(default_factory=SearchOptions)
    card: str = ""
    confidence: Confidence | None = None
    trigrams: Tensor | None = None

    def __post_init__(self) -> None:
        size, words = self.decoder.config.memory_size, self.decoder.embedding.num_embeddings
        if size != self.encoder.annotation_size:
            raise UserError(
                f"decoder memory_size {size} is not {self.encoder.annotation_size}, the size of "
                "the encoder's annotation vectors"
            )
        if words != len(self.vocabulary):
            raise UserError(
                f"the decoder was made for {words} words, but the vocabulary has "
                f"{len(self.vocabulary)}"
            )
        if 0 in self.map_shape:
            raise UserError(
                f"preprocessing size {self.preprocessing.size} is too small: the encoder "
                f"{self.encoder.config.name} makes no annotation vector of it"
            )
        self.encoder.eval()
        self.decoder.eval()

    def __repr__(self) -> str:
        rows, columns = self.map_shape
        return (
            f"Captioner({self.encoder.config.name}, {len(self.vocabulary):,} words, "
            f"maps of {rows}x{columns}, on {self.device})"
        )

    @property
    def map_shape(self) -> tuple[int, int]:
        """Rows and columns of an attention map."""
        return self.encoder.map_shape(self.preprocessing.size, self.preprocessing.size)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.decoder.embedding.weight.device

    def to(self, device: torch.device | str) -> Captioner:
        """Move the weights to a device, in place; returns itself."""
        self.encoder.to(device)
        self.decoder.to(device)
        self.trigrams = None if self.trigrams is None else self.trigrams.to(device)
        return self

    def for_inference(self, precision: torch.dtype = torch.float32) -> Captioner:
        """Fold the encoder's batch normalisation and cast its weights, in place; returns itself.

        Faster, but not to be trained or saved. The search stays in float32: many captions have a
        close second, which would win by the rounding.
        """
        self.encoder = self.encoder.fold_batch_norm().to(precision)
        return self

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
        **search: Any,
    ) -> Any:
        """Caption a photo, or photos in order.

        photos: one photo gives one caption, a list or other collection gives a list, and an
            iterator (such as a generator) gives an iterator, which reads it batch by batch. A photo
            is a path, the content of a file, a binary file, a Pillow image, a NumPy array (H, W, 3)
            or a tensor (3, H, W) of uint8 or of floats in [0, 1].
        on_error: `raise` raises `UserError` for a photo that cannot be read; `skip` gives a
            `Failed` with the reason in place of its caption.
        search: fields of `SearchOptions`, such as `beam=10` or `n_best=3`, over the model's own.
        """
        one = _is_one_photo(photos)
        is_list = isinstance(photos, Sized) and not one
        sources, again = tee([photos] if one else photos)
        items = caption_photos(
            self,
            (self._named(source, None if one else n) for n, source in enumerate(sources, start=1)),
            self.search.override(**search),
            batch_size,
            drawn_side=DRAWN_SIDE,
            workers=workers_for(self.device, len(photos), batch_size) if is_list else 0,
        )
        return shape_as_given(photos, one, map(_with_source, again, items), on_error)

    def _named(self, source: ImageSource, number: int | None) -> NamedPhoto:
        """A photo for `caption_photos`. number: its place in the list, if it is in one."""
        name = image_name(source, "the image" if number is None else f"image {number} of the list")
        return name, partial(self.preprocessing.load, source, name)

    def annotations(self, photos: Sequence[Image.Image]) -> Tensor:
        """Photos from `load_image` -> annotation vectors (B, L, D) on the device."""
        return self.encode(torch.stack([self.preprocessing(photo) for photo in photos]))

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D)."""
        precision = next(self.encoder.parameters()).dtype
        pixels = pixels.to(self.device, precision, memory_format=torch.channels_last)
        vectors = [self.encoder(chunk).float() for chunk in cpu.in_chunks(pixels)]
        return torch.cat(vectors)  # (B, L, D)

    @torch.no_grad()
    def caption_annotations(
        self,
        annotations: Tensor,
        search: SearchOptions | None = None,
        generator: torch.Generator | None = None,
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) -> captions, in order.

        search: in place of the model's own. generator: draws samples, by default a new one.
        """
        if not len(annotations):
            return []
        options = self.search if search is None else search
        vocabulary = self.vocabulary
        results = decode(
            self.decoder,
            self.decoder.remember(annotations.to(self.device)),
            start=vocabulary.start,
            end=vocabulary.end,
            strategy=options.strategy(generator, self.device),
            constraints=options.constraints(
                (vocabulary.pad, vocabulary.start, vocabulary.unknown),
                tuple(vocabulary.encode(sorted(FUNCTION_WORDS & set(vocabulary.words)))),
                self.trigrams,
                vocabulary.start,
            ),
            length_normalisation=options.length_normalisation,
        )
        captions = []
        for hypotheses in results:
            n_best = [
                self._caption(
                    [vocabulary.words[token] for token in each.tokens],
                    each.token_log_probabilities,
                    each.attention,
                    each.score,
                )
                for each in hypotheses[: options.n_best]
            ]
            if self.confidence is not None:
                n_best = self.confidence.judge(n_best)
            captions.append(replace(n_best[0], alternatives=tuple(n_best[1:])))
        return captions

    @torch.no_grad()
    def teacher_forced(
        self, annotations: Tensor, captions: Sequence[Sequence[str]]
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) and the words of a caption for each -> captions.

        They have the log-probabilities and maps of the given words, which equal the search's for a
        caption that a search found, up to rounding: they are computed in float32. A word that the
        vocabulary lacks is fed and scored as the unknown-word token, as in training.
        """
        vocabulary = self.vocabulary
        rows = [
            torch.tensor([vocabulary.start, *vocabulary.encode(words), vocabulary.end])
            for words in captions
        ]
        tokens = pad_sequence(rows, batch_first=True).to(self.device)  # (B, T + 2)
        memory = self.decoder.remember(annotations.to(self.device))
        output = self.decoder(memory, tokens[:, None, :-1])  # one row a photo
        terms = torch.log_softmax(output.logits[:, 0].float(), dim=-1)  # (B, T + 1, V)
        terms = terms.gather(-1, tokens[:, 1:, None]).squeeze(-1).cpu()  # (B, T + 1)
        weights = output.weights[:, 0].float().cpu()  # (B, T + 1, L)
        return [
            self._caption(words, terms[row, : len(words) + 1].tolist(), weights[row, : len(words)])
            for row, words in enumerate(captions)
        ]

    def _caption(
        self,
        words: Sequence[str],
        log_probabilities: Sequence[float],
        attention: Tensor,
        score: float | None = None,
    ) -> Caption:
        """T words, T + 1 log-probabilities (the end's last), maps (T, L) -> a caption."""
        return Caption(
            text=sentence(words),
            words=tuple(words),
            log_probability=sum(log_probabilities),
            word_log_probabilities=tuple(log_probabilities[: len(words)]),
            attention=attention.view(-1, *self.map_shape),  # (T, rows, columns)
            score=score,
        )


def caption_photos(
    captioner: Captioner,
    photos: Iterable[NamedPhoto],
    search: SearchOptions | None = None,
    batch_size: int = 16,
    drawn_side: int | None = None,
    translate: Callable[[list[Caption]], list[Caption]] | None = None,
    workers: int = 0,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order, as many batches in memory as there are workers, and one more.

    search: the captioner's own by default.
    drawn_side: pixels of the longer side that are needed of the photos in the results, whose pixels
        are otherwise in memory for a whole batch; None: all.
    translate: applied to the captions of each batch, such as `translate_captions`.
    workers: threads that caption a batch each; see `in_background`. One at most draws samples.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    search = search or captioner.search
    generator = search.generator(captioner.device)  # Of all batches.

    def read(name: str, load: Callable[[], Image.Image]) -> _Loaded:
        photo = load()
        pixels = captioner.preprocessing(photo)
        return _Loaded(name, photo if drawn_side is None else shrink(photo, drawn_side), pixels)

    def write(loaded: list[_Loaded]) -> Iterator[Captioned]:
        if not loaded:
            return
        annotations = captioner.encode(torch.stack([each.pixels for each in loaded]))  # (B, L, D)
        captions = captioner.caption_annotations(annotations, search, generator)
        if translate is not None:
            captions = translate(captions)
        for (name, photo, _), caption in zip(loaded, captions, strict=True):
            region = captioner.preprocessing.region(*original_size(photo))
            yield Captioned(name, caption.of_photo(photo, region))

    batches = read_batches(photos, batch_size, read)
    workers = min(workers, 1) if search.sample else workers
    outcomes = in_background(lambda batch: with_results(batch, write), batches, workers)
    return chain.from_iterable(outcomes)


def named_photos(
    paths: Iterable[str], sufficient_side: int | None = None, standard_input: bytes | None = None
) -> list[NamedPhoto]:
    """Photo files for `caption_photos`, named by their paths.

    sufficient_side: for `load_image`. standard_input: the content of the photo `-`.
    """

    def load(path: str) -> Image.Image:
        if path == "-" and standard_input is not None:
            name = "standard input"
            return load_image(standard_input, name=name, sufficient_side=sufficient_side)
        return load_image(path, sufficient_side=sufficient_side)

    return [(path, partial(load, path)) for path in paths]


def photo_paths(
    paths: Sequence[str], passed_over: Counter[str] | None = None
) -> tuple[list[str], list[Failed]]:
    """The photos named by files, folders and patterns, each once, and the names without a photo.

    passed_over: for `find_images`.
    """
    photos: list[str] = []
    failed: list[Failed] = []
    for path in paths:
        if not path:
            failed.append(Failed(path, "an empty path names no photo"))
        elif path == "-":  # Standard input; a file of that name is ./-.
            photos.append(path)
        elif is_address(path) and not os.path.lexists(path):
            failed.append(Failed(path, f"{path} {IS_ADDRESS}"))
        else:
            problems: list[str] = []
            photos += map(os.fspath, find_images([path], problems.append, passed_over))
            failed += [Failed(path, problem) for problem in problems]
    return list(dict.fromkeys(photos)), failed


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
