"""Encoders from pixels to annotation vectors: protocol, VGGs, reading of weights."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval
from typing_extensions import Self

from captioner import cpu
from captioner.errors import UserError, refuse_errors
from captioner.module_weights import read_tensors
from captioner.vision.encoder_config import EncoderConfig, VGGConfig
from captioner.vision.preprocessing import Preprocessing


class Encoder(nn.Module, ABC):
    """Turns photos into annotation vectors; the base of every family of encoders."""

    annotation_size: int  # D
    stages: ClassVar[int]  # Parts that `freeze` counts.
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

        def is_layer(module: nn.Module) -> bool:
            return not [*module.children()] or bool([*module.parameters(recurse=False)])

        layers = [*filter(is_layer, self.modules())]
        ends = [len(layers) * stage // self.stages for stage in range(self.stages + 1)]
        return [layers[start:end] for start, end in pairwise(ends)]

    def freeze(self, stages: int, batch_norm: bool) -> None:
        """Freeze the first stages: no gradient, and always evaluation mode.

        batch_norm: freeze that of the other stages too, which would drift with small batches.
        """
        self._frozen = [*chain.from_iterable(self.stage_layers()[:stages])]
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
        tensors = {name.removeprefix("encoder."): tensor for name, tensor in state.items()}
        modules = dict(self.named_children())
        return {name: tensors[name] for name in tensors if name.partition(".")[0] in modules}

    def fold_batch_norm(self) -> "Encoder":
        """The encoder for inference: batch normalisation is part of its convolutions' weights."""
        return self

    def for_inference(self, precision: torch.dtype) -> "Encoder":
        """A copy that only encodes: batch normalisation is folded, weights are cast."""
        return deepcopy(self).fold_batch_norm().to(precision).eval()

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D), float32."""
        weight = next(self.parameters())
        pixels = pixels.to(weight, non_blocking=True, memory_format=torch.channels_last)
        return torch.cat([self(chunk).float() for chunk in cpu.in_chunks(pixels)])  # (B, L, D)

    def digest(self) -> str:
        """64 hexadecimal digits (SHA-256) that differ when the configuration or a weight does."""
        digest = hashlib.sha256(self.config.model_dump_json().encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            # In float16, as a model folder stores them: a saved encoder keeps its digest.
            digest.update(tensor.detach().cpu().half().contiguous().numpy().tobytes())
        return digest.hexdigest()


linear = partial(nn.init.kaiming_normal_, nonlinearity="linear")


def draw(layer: nn.Conv2d, weights: Callable[[Tensor], object]) -> nn.Conv2d:
    """The layer, its weights drawn and its bias 0; on `meta` drawing imports torch's compiler."""
    if not layer.weight.is_meta:
        weights(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return layer


ANNOTATION_SIZE = 512  # D: the channels of the last convolution, at any width.

_STAGES: dict[str, tuple[tuple[int, ...], ...]] = {
    # Convolutions of each stage; a 2x2 max pooling stands between two stages.
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg13": ((64, 64), (128, 128), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    "vgg19": ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}


class VGGEncoder(Encoder):
    """A VGG without last pooling and classifier. Xu et al. 2015, sections 3.1.1, 4.3.

    Simonyan and Zisserman 2015, *Very Deep Convolutional Networks for Large-Scale Image
    Recognition*, table 1; the layers have torchvision's names, so its weights load. The dilated
    convolutions behind tell a vector what lies around it: the context module of Yu and Koltun 2016,
    *Multi-Scale Context Aggregation by Dilated Convolutions*, section 3; they begin as the identity
    (equation 4). Split convolutions: Zhang et al. 2016, *Accelerating Very Deep
    Convolutional Networks for Classification and Detection*, section 3.1.
    """

    annotation_size = ANNOTATION_SIZE
    stages = 5
    config: VGGConfig

    def __init__(self, config: VGGConfig) -> None:
        super().__init__(config)
        self.features = nn.Sequential(*_layers(config))
        context: list[nn.Module] = []
        for dilation in config.context:
            context += _convolution(config, ANNOTATION_SIZE, ANNOTATION_SIZE, dilation=dilation)
        self.context = nn.Sequential(*context)
        for layer in self.context:
            if isinstance(layer, nn.Conv2d):
                draw(layer, nn.init.dirac_)

    def stage_layers(self) -> list[list[nn.Module]]:
        """The layers of each of the five blocks, with the pooling or the context behind it."""
        pools = [i for i, layer in enumerate(self.features) if isinstance(layer, nn.MaxPool2d)]
        ends = [0, *(place + 1 for place in pools), len(self.features)]
        stages = [list(self.features[start:end]) for start, end in pairwise(ends)]
        stages[-1] += self.context
        return stages

    def own_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Also of a file without context, which is then as it begins."""
        tensors = super().own_tensors(state)
        if not any(name.startswith("context.") for name in tensors):
            context = self.context.state_dict()
            tensors |= {f"context.{name}": tensor for name, tensor in context.items()}
        return tensors

    def forward(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> annotation vectors (B, L, 512).

        L = (height // 16) * (width // 16), row by row: 196 for 224x224. Xu et al. 2015, 3.1.1.
        """
        vectors: Tensor = self.context(self.features(images))  # (B, 512, height / 16, width / 16)
        return vectors.flatten(start_dim=2).transpose(1, 2)  # (B, L, 512)

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the map: four poolings of two leave one for every 16 pixels."""
        return height // 16, width // 16

    def fold_batch_norm(self) -> "VGGEncoder":
        """A VGG without batch normalisation that gives the same vectors, but for rounding."""
        name = self.config.name.removesuffix("_bn")
        if name == self.config.name:
            return self
        with torch.device("meta"):  # No initial weights.
            folded = VGGEncoder(self.config.replace(name=name))
        tensors: list[Tensor] = []
        for layer, following in pairwise([*self.features, *self.context]):
            if isinstance(layer, nn.Conv2d):
                if isinstance(following, nn.BatchNorm2d):
                    layer = fuse_conv_bn_eval(layer, following)
                tensors += layer.state_dict().values()
        folded.load_state_dict(dict(zip(folded.state_dict(), tensors, strict=True)), assign=True)
        return folded.eval()

    def pretrained_weights(self) -> dict[str, Tensor]:
        """Torchvision's, which fit width 1 and rank 1."""
        return torchvision_weights(self.config.name)


def _layers(config: VGGConfig) -> list[nn.Module]:
    table = _STAGES[config.name.removesuffix("_bn")]
    stages = [[max(1, round(channels * config.width)) for channels in stage] for stage in table]
    stages[-1][-1] = ANNOTATION_SIZE
    layers: list[nn.Module] = []
    channels_in = 3
    for index, stage in enumerate(stages):
        if index > 0:
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        for channels in stage:
            kernel_size = 3
            if config.rank < 1 and index > 0:
                middle = max(1, round(channels * config.rank))
                first = nn.Conv2d(channels_in, middle, 3, padding=1, bias=False)
                layers.append(draw(first, linear))
                channels_in, kernel_size = middle, 1
            layers += _convolution(config, channels_in, channels, kernel_size)
            channels_in = channels
    return layers


def _convolution(
    config: VGGConfig, channels_in: int, channels: int, kernel_size: int = 3, dilation: int = 1
) -> list[nn.Module]:
    """A convolution, its batch normalisation if any, and its ReLU."""
    padding = dilation * (kernel_size // 2)
    layer = nn.Conv2d(channels_in, channels, kernel_size, padding=padding, dilation=dilation)
    draw(layer, partial(nn.init.kaiming_normal_, mode="fan_out", nonlinearity="relu"))
    norm = [nn.BatchNorm2d(channels)] if config.name.endswith("_bn") else []
    return [layer, *norm, nn.ReLU(inplace=True)]


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file, or of a `.pth`/`.pt` file without running code."""
    if path.suffix == ".safetensors":
        return read_tensors(path)
    with refuse_errors(f"weights file {path} cannot be read"):
        state: object = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(state, dict) and all(isinstance(value, Tensor) for value in state.values()):
        return {str(name): tensor for name, tensor in state.items()}
    raise UserError(f"weights file {path} does not hold named tensors")


def torchvision_weights(name: str, version: str = "DEFAULT") -> dict[str, Tensor]:
    """Torchvision's ImageNet weights, downloaded on first use, then checked by SHA-256.

    version: torchvision's name of them, by default the newest.
    """
    from torchvision.models import get_model_weights  # Takes about as long as importing torch.

    entry = getattr(get_model_weights(name), version)
    place = Path(torch.hub.get_dir()) / "checkpoints" / Path(entry.url).name
    advice = f"fetch {entry.url} on a machine with a network and put it at {place}, or give a file"
    with refuse_errors(f"the weights of {name} could not be downloaded or are damaged", advice):
        return dict(entry.get_state_dict(check_hash=True, map_location="cpu", weights_only=True))
