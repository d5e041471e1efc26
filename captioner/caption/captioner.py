"""The captioner: encoder, decoder, vocabulary and preprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from captioner.caption.base import CaptionDecoder
from captioner.caption.caption import Caption
from captioner.caption.confidence import Confidence
from captioner.caption.photos import PhotoCaptioner
from captioner.decoding.loop import decode, make_generator, make_strategy
from captioner.decoding.options import SearchOptions
from captioner.decoding.search import Hypothesis
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder
from captioner.vision.preprocessing import Preprocessing


@dataclass(repr=False, eq=False)
class Captioner(PhotoCaptioner):
    """Encoder, decoder, vocabulary and preprocessing; see `captioner.load`.

    search: the default options. card: the text of the model card. confidence: of a calibrated model
        (`captioner calibrate`). ngrams: of `Rules`, to which the search keeps.
    """

    encoder: Encoder
    decoder: CaptionDecoder
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    search: SearchOptions = field(default_factory=SearchOptions)
    card: str = ""
    confidence: Confidence | None = None
    ngrams: Tensor | None = None

    def __post_init__(self) -> None:
        needed = self.encoder.annotation_size
        if (size := self.decoder.config.memory_size) != needed:
            raise UserError(f"decoder memory_size {size} is not {needed}, that of the encoder")
        if 0 in self.map_shape:
            size = self.preprocessing.size
            name = self.encoder.config.name
            raise UserError(f"preprocessing size {size} is too small for the encoder {name}")
        self.encoder.eval()
        self.decoder.eval()

    def __repr__(self) -> str:
        rows, columns = self.map_shape
        parts = f"{self.encoder.config.name}, {len(self.vocabulary):,} words"
        return f"Captioner({parts}, maps of {rows}x{columns}, on {self.device})"

    @property
    def map_shape(self) -> tuple[int, int]:
        return self.encoder.map_shape(self.preprocessing.size, self.preprocessing.size)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.decoder.embedding.weight.device

    @property
    def threads(self) -> int:
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def to(self, device: torch.device | str) -> Captioner:
        """Move the weights to a device, in place; returns itself."""
        self.encoder.to(device)
        self.decoder.to(device)
        self.ngrams = None if self.ngrams is None else self.ngrams.to(device)
        return self

    def for_inference(self, precision: torch.dtype = torch.float32) -> Captioner:
        """Fold the encoder's batch normalisation and cast its weights, in place; returns itself.

        Not to be trained or saved then. The search stays in float32: many captions have a close
        second, which would win by the rounding.
        """
        self.encoder = self.encoder.fold_batch_norm().to(precision)
        return self

    def encode_pixels(self, pixels: Any) -> Any:
        return super().encode_pixels(torch.from_numpy(pixels).to(self.device))

    def encode(self, pixels: Tensor) -> Tensor:
        return self.encoder.encode(pixels)

    @torch.no_grad()
    def find_hypotheses(
        self, annotations: Tensor, search: SearchOptions, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        return decode(
            self.decoder,
            self.decoder.remember(annotations.to(self.device)),
            start=Vocabulary.start,
            end=Vocabulary.end,
            strategy=make_strategy(search, generator or make_generator(search, self.device)),
            constraints=self.constraints(search),
            length_normalisation=search.length_normalisation,
        )

    @torch.no_grad()
    def teacher_forced(
        self, annotations: Tensor, captions: Sequence[Sequence[str]]
    ) -> list[Caption]:
        """Annotation vectors (B, L, D) and the words of a caption for each -> captions.

        Their log-probabilities and maps are those of the search, up to rounding. A word that the
        vocabulary lacks is fed and scored as the unknown-word token, as in training.
        """
        vocabulary = self.vocabulary
        start, end = vocabulary.start, vocabulary.end
        rows = [torch.tensor([start, *vocabulary.encode(words), end]) for words in captions]
        tokens = pad_sequence(rows, batch_first=True).to(self.device)  # (B, T + 2)
        memory = self.decoder.remember(annotations.to(self.device))
        output = self.decoder(memory, tokens[:, None, :-1])  # one row a photo
        terms = torch.log_softmax(output.logits[:, 0].float(), dim=-1)  # (B, T + 1, V)
        terms = terms.gather(-1, tokens[:, 1:, None]).squeeze(-1).cpu()  # (B, T + 1)
        weights = output.weights[:, 0].float().cpu().numpy()  # (B, T + 1, L)
        return [
            self._caption(words, terms[row, : len(words) + 1].tolist(), weights[row, : len(words)])
            for row, words in enumerate(captions)
        ]
