"""Captions by torch: a captioner's encoder and decoder, to train, to save and to compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from captioner import cpu
from captioner.arrays import Array, Values
from captioner.backends.protocol import CaptionBackend, Sentence, Words
from captioner.backends.vocabulary_search import VocabularyCaptions
from captioner.decoding.loop import decode, make_strategy
from captioner.decoding.options import SearchOptions
from captioner.devices import choose_device, choose_precision
from captioner.errors import UserError
from captioner.model_folders import CONFIG, VOCABULARY, WEIGHTS, ModelFolder
from captioner.models.caption_config import CaptionDecoderConfig, CaptionNetworksConfig
from captioner.models.caption_decoder import CaptionDecoder
from captioner.models.caption_transformer import TransformerDecoder
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.module_weights import load_weights
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import Encoder
from captioner.vision.encoder_families import make_encoder
from captioner.vision.preprocessing import Preprocessing

_DECODERS: dict[str, Callable[[Any, int], CaptionDecoder]] = {
    "lstm": ShowAttendTellDecoder,
    "transformer": TransformerDecoder,
}
"""By `CaptionDecoderConfig.kind`."""


@dataclass(repr=False, eq=False)
class TorchCaptions(VocabularyCaptions):
    """The `CaptionBackend` of an encoder and a decoder."""

    engine: ClassVar[str] = "torch"
    can_sample: ClassVar[bool] = True

    encoder: Encoder
    decoder: CaptionDecoder
    vocabulary: Vocabulary
    preprocessing: Preprocessing

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
        return f"{self.encoder.config.name}, {len(self.vocabulary):,} words, on {self.device}"

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

    def to(self, device: torch.device | str) -> TorchCaptions:
        """Move the weights to a device, in place; returns itself."""
        self.encoder.to(device)
        self.decoder.to(device)
        return self

    def for_inference(self, precision: torch.dtype = torch.float32) -> TorchCaptions:
        """Finish the networks, in place; returns itself.

        Folds the encoder's batch normalisation, casts its weights and packs the decoder's. Finished
        networks are neither trained nor saved nor moved. The search stays in float32: many captions
        have a close second, which would win by the rounding.
        """
        self.encoder = self.encoder.fold_batch_norm().to(precision)
        cpu.pack(self.decoder)
        return self

    def for_workers(self, workers: int) -> TorchCaptions:
        """Itself: all workers share torch's threads."""
        return self

    def encode(self, pixels: Array) -> Tensor:
        on_device = torch.from_numpy(pixels).to(self.device)
        return self.encoder.encode(self.preprocessing.normalise(on_device))

    @torch.no_grad()
    def search(
        self, annotations: Values, search: SearchOptions, generator: torch.Generator | None = None
    ) -> list[list[Sentence]]:
        hypotheses = decode(
            self.decoder,
            self.decoder.remember(torch.as_tensor(annotations).to(self.device)),
            start=Vocabulary.start,
            end=Vocabulary.end,
            strategy=make_strategy(search, generator),
            constraints=self.constraints(search),
            length_normalisation=search.length_normalisation,
        )
        return [list(map(self.in_words, of_photo)) for of_photo in hypotheses]

    @torch.no_grad()
    def teacher_forced(self, annotations: Values, captions: Sequence[Words]) -> list[Sentence]:
        vocabulary = self.vocabulary
        start, end = vocabulary.start, vocabulary.end
        rows = [torch.tensor([start, *vocabulary.encode(words), end]) for words in captions]
        tokens = pad_sequence(rows, batch_first=True).to(self.device)  # (B, T + 2)
        memory = self.decoder.remember(torch.as_tensor(annotations).to(self.device))
        output = self.decoder(memory, tokens[:, None, :-1])  # one row a photo
        terms = torch.log_softmax(output.logits[:, 0].float(), dim=-1)  # (B, T + 1, V)
        terms = terms.gather(-1, tokens[:, 1:, None]).squeeze(-1).cpu()  # (B, T + 1)
        weights = output.weights[:, 0].float().cpu().numpy()  # (B, T + 1, L)
        return [
            Sentence(list(words), of_row[: len(words) + 1].tolist(), maps[: len(words)])
            for words, of_row, maps in zip(captions, terms, weights, strict=True)
        ]


def make_decoder(config: CaptionDecoderConfig, vocabulary_size: int) -> CaptionDecoder:
    """The decoder of a configuration for so many words, with fresh weights."""
    return _DECODERS[config.kind](config, vocabulary_size)


def networks_of(backend: CaptionBackend) -> TorchCaptions:
    """A backend that can be trained and saved; refuses another."""
    if not isinstance(backend, TorchCaptions):
        raise UserError(f"a captioner by {backend.engine} has no networks to train or save")
    if any(isinstance(layer, cpu.PackedLinear) for layer in backend.decoder.modules()):
        raise UserError("this captioner is open for captioning; `load_model` opens it for training")
    return backend


def load_networks(folder: ModelFolder) -> TorchCaptions:
    """The networks of a model folder on the CPU, to train or to compute."""
    config = folder.read("captioner", CaptionNetworksConfig)
    if folder.has_graphs and not folder.has_weights:
        raise UserError(f"{folder.path} holds graphs alone; give the model that was exported")
    folder.check()
    files = folder.files
    vocabulary = Vocabulary.load(files / VOCABULARY)
    with torch.device("meta"):  # Allocates no memory and draws no initial weights.
        encoder = make_encoder(config.encoder).to(memory_format=torch.channels_last)
        decoder = make_decoder(config.decoder, len(vocabulary))
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    load_weights(model, files / WEIGHTS, folder.digests.get(WEIGHTS))
    try:
        return TorchCaptions(encoder, decoder, vocabulary, config.preprocessing)
    except UserError as error:
        raise UserError(f"{files / CONFIG}: {error}") from None


def open_captions(folder: ModelFolder, device: str, precision: str) -> TorchCaptions:
    """The backend of a model folder, for inference."""
    dtype = choose_precision(precision)
    return load_networks(folder).to(choose_device(device)).for_inference(dtype)
