"""The protocol of encoders: pixels in, annotation vectors out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from captioner.schema import Config


class EncoderConfig(Config):
    """The name and sizes of an encoder.

    A family's subclass narrows `name` to a `Literal` of its names.
    """

    name: str

    @classmethod
    def field_names(cls) -> list[str]:
        """Its fields and those of the families below it."""
        return sorted({name for kind in (cls, *cls.__subclasses__()) for name in kind.model_fields})

    @property
    def has_batch_norm(self) -> bool:
        """Whether it has batch normalisation."""
        return False


class Encoder(nn.Module, ABC):
    """Turns photos into annotation vectors; the base of every family of encoders.

    Each family is a subclass in a separate module, and a row of `captioner.vision.encoders`.

    annotation_size: D. stages: how many parts `freeze` counts.
    config: its name and sizes, as a model's `config.json` holds them.
    """

    annotation_size: ClassVar[int]
    stages: ClassVar[int]
    config: EncoderConfig

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> annotation vectors (B, L, D).

        L = rows * columns of `map_shape`, row by row from the top left.
        """

    @abstractmethod
    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the map of an image of this size in pixels; 0 if it is too small."""

    @abstractmethod
    def freeze(self, stages: int, batch_norm: bool) -> None:
        """Freeze the first stages, and the batch normalisation of the others."""

    @abstractmethod
    def imagenet_weights(self) -> dict[str, Tensor]:
        """The published weights. Raises `UserError` when there are none or they cannot be had."""

    def fold_batch_norm(self) -> Encoder:
        """The encoder for inference: batch normalisation is part of its convolutions' weights.

        Itself if there is nothing to fold.
        """
        return self

    def digest(self) -> str:
        """64 hexadecimal digits (SHA-256) that differ when the configuration or a weight does."""
        digest = hashlib.sha256(repr(self.config).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            # In float16, as a model folder stores them: a saved encoder keeps its digest.
            digest.update(tensor.detach().cpu().half().contiguous().numpy().tobytes())
        return digest.hexdigest()
