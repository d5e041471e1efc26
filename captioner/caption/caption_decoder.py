"""The base of caption decoders, for training and for the decoder loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from captioner.attention import Memory
from captioner.caption.standardisation import Standardisation
from captioner.decoding.protocol import Decoder
from captioner.schema import SIZE, Config


class CaptionDecoderConfig(Config):
    """The kind of the decoder, and the fields of every kind.

    A kind's subclass narrows `kind` to a `Literal` of its name.
    """

    kind: str
    embedding_size: int
    memory_size: int = Field(512, ge=1, le=SIZE, description="D, of an annotation vector")
    selection: Literal["soft", "hard"]
    memory_dropout: float = Field(
        0.0, ge=0, lt=1, description="on whole channels of a photo's annotation vectors"
    )
    standardise: bool = Field(
        False,
        description="bring annotation vectors to mean 0 and standard deviation 1 by those of "
        "training photos; not in the paper",
    )

    @classmethod
    def field_names(cls) -> list[str]:
        """Its fields and those of the kinds below it."""
        return sorted({name for kind in (cls, *cls.__subclasses__()) for name in kind.model_fields})


class TeacherForced(NamedTuple):
    """A decoder's output for given captions.

    logits: (B, K, T, V). weights: (B, K, T, L). log_probability: (B, K, T), of the positions drawn
    by hard attention, and entropy: (B, K, T), of their distribution, in nats; None for soft.
    """

    logits: Tensor
    weights: Tensor
    log_probability: Tensor | None = None
    entropy: Tensor | None = None


class CaptionDecoder(nn.Module, Decoder):
    """Annotation vectors to words.

    Each kind is a subclass in a separate module, and a row of `captioner.caption.decoders`.
    """

    word_tensors: ClassVar = ("embedding.weight", "output.weight", "output.bias")
    """The tensors with a row for each of V words."""

    config: CaptionDecoderConfig
    embedding: nn.Embedding
    output: nn.Linear
    standardisation: Standardisation | None

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
            kept = functional.dropout(
                annotations.new_ones(annotations.shape[0], 1, annotations.shape[2]),
                self.config.memory_dropout,
            )  # (B, 1, D)
            annotations = annotations * kept
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
