"""The base of caption decoders: its config, standardised annotation vectors, word vectors."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.attention.memory import Memory
from captioner.decoding.protocol import Decoder, TeacherForced
from captioner.errors import UserError
from captioner.models.caption_config import CaptionDecoderConfig


class Standardisation(nn.Module):
    """(a - mean) / deviation of annotation vectors a, for each of their D channels.

    A rectifier's outputs are never negative: their mean over many photos is several times as large
    as the difference between photos, and dropout's noise is proportional to the whole.

    mean, deviation: (D,), over the positions of training photos; the identity until `fit`.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def fit(self, photos: Iterable[Tensor]) -> None:
        """Estimate mean and deviation from batches (B, L, D); no deviation is nearly 0."""
        count = 0
        total, squares = torch.zeros(2, len(self.mean), dtype=torch.float64)  # (D,) each
        for vectors in photos:
            flat = vectors.detach().flatten(end_dim=1).cpu().double()  # (B * L, D)
            count += len(flat)
            total += flat.sum(dim=0)
            squares += flat.square().sum(dim=0)
        mean = total / count  # (D,)
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()  # (D,)
        if not deviation.max() > 0:
            raise UserError("annotation vectors cannot be standardised: all are alike")
        deviation = deviation.clamp(min=0.05 * float(deviation[deviation > 0].median()))
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, annotations: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        return (annotations - self.mean) / self.deviation


class CaptionDecoder(nn.Module, Decoder):
    """Annotation vectors to words. Each kind is a subclass; see `make_decoder`."""

    word_tensors: ClassVar = ("embedding.weight", "output.weight", "output.bias")
    """The tensors with a row for each of V words."""

    config: CaptionDecoderConfig
    embedding: nn.Embedding
    output: nn.Linear

    def __init__(self, config: CaptionDecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.standardisation = Standardisation(config.memory_size) if config.standardise else None

    @abstractmethod
    def remember(self, annotations: Tensor) -> Memory:
        """Annotation vectors (B, L, D) -> the memory for `start` and `forward`."""

    @abstractmethod
    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """Teacher forcing: fed words (B, K, T), `<start>` first -> `TeacherForced`."""

    def standardised(self, annotations: Tensor) -> Tensor:
        """Annotation vectors (B, L, D) -> (B, L, D), standardised, and with dropped channels."""
        if self.standardisation is not None:
            annotations = self.standardisation(annotations)
        if self.training and self.config.memory_dropout > 0:
            ones = torch.ones_like(annotations[:, :1])  # (B, 1, D)
            annotations = annotations * functional.dropout(ones, self.config.memory_dropout)
        return annotations


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode, and restore its mode at the end."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
