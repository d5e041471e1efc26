"""The captioner: photos in, captions with attention maps out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import tee
from typing import Any, Literal, overload

import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioner import cpu
from captioner.background import workers_for
from captioner.caption.caption_decoder import CaptionDecoder
from captioner.caption.caption_photos import Captioned, NamedPhoto, caption_photos
from captioner.caption.confidence import Confidence
from captioner.caption.written_caption import DRAWN_SIDE, Caption, sentence
from captioner.decoding import SearchOptions, decode
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.outcomes import Failed, shape_as_given
from captioner.text.function_words import FUNCTION_WORDS
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder
from captioner.vision.images import ImageSource, image_name, load_image
from captioner.vision.preprocessing import Preprocessing


@dataclass(repr=False, eq=False)
class Captioner:
    """Encoder, decoder, vocabulary and preprocessing; see `captioner.load`.

    search: the default options. card: the text of the model card. confidence: of a calibrated model
        (`captioner calibrate`). precision: of the search's matrix products. trigrams: keys of the
        triples of tokens that people wrote, to which the search keeps; see `Constraints`.

    Raises `UserError` if the parts do not fit together.
    """

    encoder: Encoder
    decoder: CaptionDecoder
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    search: SearchOptions = field(default_factory=SearchOptions)
    card: str = ""
    confidence: Confidence | None = None
    precision: torch.dtype = torch.float32
    trigrams: Tensor | None = None

    def __post_init__(self) -> None:
        if self.decoder.config.memory_size != self.encoder.annotation_size:
            raise UserError(
                f"decoder memory_size {self.decoder.config.memory_size} is not "
                f"{self.encoder.annotation_size}, "
                "the size of the encoder's annotation vectors"
            )
        if self.decoder.embedding.num_embeddings != len(self.vocabulary):
            raise UserError(
                f"the decoder was made for {self.decoder.embedding.num_embeddings} words, but the "
                f"vocabulary has {len(self.vocabulary)}"
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
        """Fold batch normalisation and compute in `precision`, in place; returns itself.

        Faster, but not to be trained or saved: the encoder's weights are cast. Annotation vectors,
        maps and log-probabilities are float32 tensors, with the rounding of that precision.
        """
        self.encoder = self.encoder.fold_batch_norm().to(precision)
        self.precision = precision
        return self

    @overload
    def caption(
        self, photos: ImageSource, *, on_error: Literal["skip"], batch_size: int = 16, **search: Any
    ) -> Caption | Failed: ...

    @overload
    def caption(self, photos: ImageSource, *, batch_size: int = 16, **search: Any) -> Caption: ...

    @overload
    def caption(
        self,
        photos: Iterator[ImageSource],
        *,
        on_error: Literal["skip"],
        batch_size: int = 16,
        **search: Any,
    ) -> Iterator[Caption | Failed]: ...

    @overload
    def caption(
        self, photos: Iterator[ImageSource], *, batch_size: int = 16, **search: Any
    ) -> Iterator[Caption]: ...

    @overload
    def caption(
        self,
        photos: Iterable[ImageSource],
        *,
        on_error: Literal["skip"],
        batch_size: int = 16,
        **search: Any,
    ) -> list[Caption | Failed]: ...

    @overload
    def caption(
        self, photos: Iterable[ImageSource], *, batch_size: int = 16, **search: Any
    ) -> list[Caption]: ...

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

        Raises `UserError` as `SearchOptions.override` does, and for a batch size below 1.
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
        side = self.preprocessing.sufficient_side
        return name, partial(load_image, source, name=name, sufficient_side=side)

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
        with autocast(self.device, self.precision):
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
