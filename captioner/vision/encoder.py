"""The protocol of encoders, pixels in, annotation vectors out, and the reading of their weights."""

from __future__ import annotations

import hashlib
import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import Self

from captioner import cpu
from captioner.errors import UserError
from captioner.schema import Kinds
from captioner.vision.preprocessing import Preprocessing
from captioner.weight_files import read_tensors

WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt")  # Of the files that `read_weights` reads.


class EncoderConfig(Kinds):
    """The name and sizes of an encoder; a family's subclass narrows `name` to its names."""

    name: str


class Encoder(nn.Module, ABC):
    """Turns photos into annotation vectors; the base of every family of encoders.

    annotation_size: D. stages: how many parts `freeze` counts.
    """

    annotation_size: int
    stages: ClassVar[int]
    config: EncoderConfig

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self._frozen: list[nn.Module] = []

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> annotation vectors (B, L, D).

        L = rows * columns of `map_shape`, row by row from the top left.
        """

    @abstractmethod
    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the map of an image of this size in pixels; 0 if it is too small."""

    @abstractmethod
    def pretrained_weights(self) -> dict[str, Tensor]:
        """The published weights."""

    @classmethod
    def published_preprocessing(cls, config: EncoderConfig) -> Preprocessing:
        """The preprocessing of the published weights."""
        return Preprocessing()

    def stage_layers(self) -> list[list[nn.Module]]:
        """The layers of each stage: as many in each, in order."""
        layers = [
            layer
            for layer in self.modules()
            if not list(layer.children()) or list(layer.parameters(recurse=False))
        ]
        ends = [len(layers) * stage // self.stages for stage in range(self.stages + 1)]
        return [layers[start:end] for start, end in pairwise(ends)]

    def freeze(self, stages: int, batch_norm: bool) -> None:
        """Freeze the first stages: no gradient, and always evaluation mode.

        batch_norm: freeze that of the other stages too, which would drift with small batches.
        """
        self._frozen = [layer for stage in self.stage_layers()[:stages] for layer in stage]
        if batch_norm:
            self._frozen += [layer for layer in self.modules() if isinstance(layer, _BatchNorm)]
        self.requires_grad_(True)
        for layer in self._frozen:
            for parameter in layer.parameters(recurse=False):
                parameter.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the layers that are not frozen."""
        super().train(mode)
        for layer in self._frozen:
            layer.training = False
        return self

    def own_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of a file that are the encoder's, not a classifier's or a decoder's."""
        names = {name: name.removeprefix("encoder.") for name in state}
        modules = {name for name, _ in self.named_children()}
        return {new: state[old] for old, new in names.items() if new.partition(".")[0] in modules}

    def fold_batch_norm(self) -> Encoder:
        """The encoder for inference: batch normalisation is part of its convolutions' weights."""
        return self

    def for_inference(self, precision: torch.dtype) -> Encoder:
        """A copy that only encodes: batch normalisation is folded, weights are cast."""
        return deepcopy(self).fold_batch_norm().to(precision).eval()

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D), float32.

        On a CPU a few photos at a time, whose feature maps its caches hold.
        """
        weight = next(self.parameters())
        pixels = pixels.to(
            weight.device, weight.dtype, non_blocking=True, memory_format=torch.channels_last
        )
        return torch.cat([self(chunk).float() for chunk in cpu.in_chunks(pixels)])  # (B, L, D)

    def digest(self) -> str:
        """64 hexadecimal digits (SHA-256) that differ when the configuration or a weight does."""
        digest = hashlib.sha256(repr(self.config).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            # In float16, as a model folder stores them: a saved encoder keeps its digest.
            digest.update(tensor.detach().cpu().half().contiguous().numpy().tobytes())
        return digest.hexdigest()


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file, or of a `.pth`/`.pt` file without running code."""
    if not path.is_file():
        raise UserError(f"weights file {path} does not exist")
    if path.suffix == ".safetensors":
        return read_tensors(path)
    with refused(f"weights file {path} cannot be read"):
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(each, Tensor) for each in state.values()):
        raise UserError(f"weights file {path} does not hold named tensors")
    return {str(name): tensor for name, tensor in state.items()}


def torchvision_weights(name: str) -> dict[str, Tensor]:
    """Torchvision's ImageNet weights, downloaded on first use, then checked by SHA-256."""
    from torchvision.models import get_model_weights  # Takes about as long as importing torch.

    entry: Any = get_model_weights(name).DEFAULT
    place = Path(torch.hub.get_dir()) / "checkpoints" / Path(entry.url).name
    advice = f"fetch {entry.url} on a machine with a network and put it at {place}, or give a file"
    with refused(f"the weights of {name} could not be downloaded or are damaged", advice):
        return dict(entry.get_state_dict(check_hash=True, map_location="cpu", weights_only=True))


@contextmanager
def refused(problem: str, advice: str = "") -> Iterator[None]:
    """Raise `UserError` for any error: torch, timm and networks raise many types."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = re.split(r"\.?\s*\n|\. ", str(error))[0].rstrip(".") or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):  # Torch advises to run the file's code.
            reason = "it is damaged, or holds something besides tensors, which is never run"
        raise UserError(f"{problem} ({reason}){'; ' * bool(advice)}{advice}") from None
