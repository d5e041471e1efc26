"""The captioner: photos in, captions with attention maps out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from PIL import Image
from torch import Tensor

from captioner import cpu
from captioner.caption.confidence import Confidence
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.caption.written_caption import Caption, sentence
from captioner.decoding import Hypothesis, LengthNormalisation, SearchOptions, decode
from captioner.errors import UserError
from captioner.text.function_words import FUNCTION_WORDS
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder
from captioner.vision.images import ImageSource, load_image, original_size
from captioner.vision.preprocessing import Preprocessing


@dataclass
class Captioner:
    """Encoder, decoder, vocabulary and preprocessing; see `captioner.load`.

    search: the default options. card: the text of the model card. confidence: of a calibrated model
        (`captioner calibrate`).

    Raises `UserError` if the parts do not fit together.
    """

    encoder: Encoder
    decoder: ShowAttendTellDecoder
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    search: SearchOptions = field(default_factory=SearchOptions)
    card: str = ""
    confidence: Confidence | None = None

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
        return self

    def for_inference(self, precision: torch.dtype = torch.float32) -> Captioner:
        """Fold batch normalisation and cast the encoder's weights, in place; returns itself.

        Faster, but not to be trained or saved. Annotation vectors stay in float32.
        """
        self.encoder = self.encoder.fold_batch_norm().to(precision)
        return self

    def caption(
        self,
        images: Iterable[ImageSource],
        search: SearchOptions | None = None,
        batch_size: int = 16,
        generator: torch.Generator | None = None,
    ) -> list[Caption]:
        """Caption photos, in order.

        images: paths, contents of files, binary files or Pillow images; consumed batch by batch.
        search: by default the model's own. generator: of sampling; by default a new one from the
            search's seed.
        Raises `UserError` for the first photo that cannot be read.
        """
        if isinstance(images, (str, bytes, os.PathLike, Image.Image)) or hasattr(images, "read"):
            raise TypeError("caption() takes a list of photos; put the one photo in a list")
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not at least 1")
        generator = generator or (self.search if search is None else search).generator()
        captions: list[Caption] = []
        numbered = enumerate(images, start=1)
        while batch := list(islice(numbered, batch_size)):
            pixels, sizes = [], []
            for number, image in batch:
                side = self.preprocessing.sufficient_side
                photo = load_image(image, name=_name(image, number), sufficient_side=side)
                pixels.append(self.preprocessing(photo))
                sizes.append(original_size(photo))
            captions += self.caption_pixels(torch.stack(pixels), sizes, search, generator)
        return captions

    def caption_loaded(
        self,
        photos: Sequence[Image.Image],
        search: SearchOptions | None = None,
        generator: torch.Generator | None = None,
    ) -> list[Caption]:
        """Caption one batch of photos from `load_image`; see `caption`."""
        if not photos:
            return []
        sizes = [original_size(photo) for photo in photos]
        return self.caption_pixels(self.preprocessing.batch(photos), sizes, search, generator)

    def caption_pixels(
        self,
        pixels: Tensor,
        sizes: Sequence[tuple[int, int]],
        search: SearchOptions | None = None,
        generator: torch.Generator | None = None,
    ) -> list[Caption]:
        """Caption one batch of preprocessed photos (B, 3, size, size); see `caption`.

        sizes: width and height of each photo, for `Caption.region`.
        """
        regions = [self.preprocessing.region(*size) for size in sizes]
        return self.caption_annotations(self.encode(pixels), search, regions, generator)

    def annotations(self, photos: Sequence[Image.Image]) -> Tensor:
        """Photos from `load_image` -> annotation vectors (B, L, D) on the device."""
        return self.encode(self.preprocessing.batch(photos))

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
        regions: Sequence[tuple[float, float, float, float] | None] | None = None,
        generator: torch.Generator | None = None,
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) -> captions, in order.

        regions: the `Caption.region` of each photo. generator: as for `caption`.
        """
        options = self.search if search is None else search
        vocabulary = self.vocabulary
        results = decode(
            self.decoder,
            self.decoder.remember(annotations.to(self.device)),
            start=vocabulary.start,
            end=vocabulary.end,
            strategy=options.strategy(generator),
            constraints=options.constraints(
                (vocabulary.pad, vocabulary.start, vocabulary.unknown),
                tuple(vocabulary.encode(sorted(FUNCTION_WORDS & set(vocabulary.words)))),
            ),
            length_normalisation=LengthNormalisation(options.length_normalisation),
        )
        unusual = self.confidence.unusualness(annotations) if self.confidence else []
        captions = []
        for index, hypotheses in enumerate(results):
            region = None if regions is None else regions[index]
            n_best = [self._caption(h, region) for h in hypotheses[: options.n_best]]
            if self.confidence is not None:
                n_best = self.confidence.judge(n_best, unusual[index])
            captions.append(replace(n_best[0], alternatives=tuple(n_best[1:])))
        return captions

    def teacher_forced(
        self,
        photos: Sequence[Image.Image],
        sentences: Sequence[str | Sequence[str]],
        allow_unknown: bool = False,
    ) -> list[Caption]:
        """Score given sentences of one batch of photos, by teacher forcing.

        photos: from `load_image`. sentences: one a photo, as text or words.
        allow_unknown: as for `teacher_forced_annotations`.

        Each `Caption` has the given words, their log-probabilities and their maps, which equal the
        search's for a caption that a search found. Raises `UserError` for the first word that the
        vocabulary lacks.
        """
        if not photos and not sentences:
            return []
        regions = [self.preprocessing.region(*original_size(photo)) for photo in photos]
        return self.teacher_forced_annotations(
            self.annotations(photos), sentences, regions, allow_unknown
        )

    @torch.no_grad()
    def teacher_forced_annotations(
        self,
        annotations: Tensor,
        sentences: Sequence[str | Sequence[str]],
        regions: Sequence[tuple[float, float, float, float] | None] | None = None,
        allow_unknown: bool = False,
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) and a sentence for each -> captions by teacher forcing.

        regions: the `Caption.region` of each photo.
        allow_unknown: feed and score the unknown-word token for words that the vocabulary lacks, as
            in training, instead of refusing them; `Caption.words` keeps the words.
        Raises `UserError` as `teacher_forced` does.
        """
        if len(sentences) != len(annotations):
            raise ValueError(f"there are {len(annotations)} photos but {len(sentences)} sentences")
        captions = [tokenize(each) if isinstance(each, str) else list(each) for each in sentences]
        if not allow_unknown:
            self._refuse_unknown(captions)
        vocabulary = self.vocabulary
        longest = max(map(len, captions), default=0)
        tokens = torch.full((len(captions), longest + 2), vocabulary.pad)  # (B, T + 2)
        for row, words in enumerate(captions):
            whole = [vocabulary.start, *vocabulary.encode(words), vocabulary.end]
            tokens[row, : len(whole)] = torch.tensor(whole)
        tokens = tokens.to(self.device)
        memory = self.decoder.remember(annotations.to(self.device))
        output = self.decoder(memory, tokens[:, None, :-1])  # one row a photo
        terms = torch.log_softmax(output.logits[:, 0].float(), dim=-1)  # (B, T + 1, V)
        terms = terms.gather(-1, tokens[:, 1:, None]).squeeze(-1).cpu()  # (B, T + 1)
        weights = output.weights[:, 0].float().cpu()  # (B, T + 1, L)
        return [
            self._with_maps(
                words,
                terms[row, : len(words) + 1].tolist(),
                weights[row, : len(words)],
                None if regions is None else regions[row],
            )
            for row, words in enumerate(captions)
        ]

    def _refuse_unknown(self, sentences: Sequence[Sequence[str]]) -> None:
        for words in sentences:
            for word in words:
                if word not in self.vocabulary:
                    raise UserError(
                        f"the model's vocabulary lacks {word!r}, a word of {sentence(words)!r}"
                    )

    def _caption(
        self, hypothesis: Hypothesis, region: tuple[float, float, float, float] | None
    ) -> Caption:
        caption = self._with_maps(
            [self.vocabulary.words[token] for token in hypothesis.tokens],
            hypothesis.token_log_probabilities,
            hypothesis.attention,
            region,
        )
        return replace(caption, score=hypothesis.score)

    def _with_maps(
        self,
        words: Sequence[str],
        log_probabilities: Sequence[float],
        attention: Tensor,
        region: tuple[float, float, float, float] | None,
    ) -> Caption:
        """T words, T + 1 log-probabilities (the end's last), maps (T, L) -> a caption."""
        return Caption(
            text=sentence(words),
            words=tuple(words),
            log_probability=sum(log_probabilities),
            word_log_probabilities=tuple(log_probabilities[: len(words)]),
            attention=attention.view(-1, *self.map_shape),  # (T, rows, columns)
            region=region,
        )


def _name(photo: ImageSource, number: int) -> str | None:
    """The name in errors of a photo without its own: its number in the list."""
    if isinstance(photo, (str, os.PathLike)):
        return None
    has_name = getattr(photo, "name", None) or getattr(photo, "filename", None)
    return None if has_name else f"image {number} of the list"
