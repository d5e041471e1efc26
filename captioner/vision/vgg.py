"""VGG encoders: the networks cut before their last pooling.

Simonyan and Zisserman 2015, *Very Deep Convolutional Networks for Large-Scale Image Recognition*,
table 1; used as the source of annotation vectors by Xu et al. 2015, section 3.1.1 and 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from captioner.errors import UserError
from captioner.schema import Share
from captioner.vision.encoder import Encoder, EncoderConfig, torchvision_weights

ANNOTATION_SIZE = 512  # D: the channels of the last convolution, at any width.

_STAGES: dict[str, tuple[tuple[int, ...], ...]] = {
    # Convolutions of each stage; a 2x2 max pooling stands between two stages.
    "vgg11": ((64,), (128,), (256, 256), (512, 512), (512, 512)),
    "vgg13": ((64, 64), (128, 128), (256, 256), (512, 512), (512, 512)),
    "vgg16": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3),
    "vgg19": ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4),
}


class VGGConfig(EncoderConfig):
    """Which VGG it is."""

    name: Literal[
        "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"
    ] = Field("vgg19", description="torchvision's name of the VGG; bn for batch normalisation")
    width: Share = Field(
        1.0,
        description="factor on the channels of every convolution but the last; ImageNet weights "
        "need 1",
    )
    rank: Share = Field(
        1.0,
        repr=False,  # A digest of before has none; split weights have other names and shapes.
        description="below 1, each convolution behind the first pooling is two: a 3x3 one with "
        "this share of its channels, and a 1x1 one; those of the context stay whole. ImageNet "
        "weights need 1",
    )
    context: tuple[Annotated[int, Field(ge=1, le=14, strict=True)], ...] = Field(
        (),
        strict=False,
        description="dilations of convolutions behind the last, which begin by changing nothing",
    )


class VGGEncoder(Encoder):
    """A VGG without its last pooling and classifier.

    The convolutions have torchvision's names (`features.N.weight`), so torchvision's weights load.
    Dilated ones may stand behind them, so that a vector knows what lies around its place: the
    context module of Yu and Koltun 2016, *Multi-Scale Context Aggregation by Dilated Convolutions*,
    section 3. They begin as the identity (equation 4); so do they with weights that have none.
    Split convolutions are those of Zhang et al. 2016, *Accelerating Very Deep Convolutional
    Networks for Classification and Detection*, section 3.1.
    """

    annotation_size = ANNOTATION_SIZE
    stages = 5
    config: VGGConfig

    def __init__(self, config: VGGConfig) -> None:
        super().__init__(config)
        self.features = nn.Sequential(*_layers(config))
        sizes = (ANNOTATION_SIZE, ANNOTATION_SIZE)
        context = [_convolution(config, *sizes, dilation=each) for each in config.context]
        self.context = nn.Sequential(*chain(*context))
        for layer in self.context:
            if isinstance(layer, nn.Conv2d) and not layer.weight.is_meta:
                nn.init.dirac_(layer.weight)

    def stage_layers(self) -> list[list[nn.Module]]:
        """The layers of each of the five blocks, with the pooling or the context behind it."""
        pools = [i for i, layer in enumerate(self.features) if isinstance(layer, nn.MaxPool2d)]
        ends = [0, *(place + 1 for place in pools), len(self.features)]
        stages = [list(self.features[start:end]) for start, end in pairwise(ends)]
        stages[-1] += self.context
        return stages

    def own_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of a file; of a file without context, the context as it begins."""
        own = super().own_tensors(state)
        if not any(name.startswith("context.") for name in own):
            own |= {f"context.{name}": value for name, value in self.context.state_dict().items()}
        return own

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, height, width), preprocessed -> annotation vectors (B, L, 512).

        L = (height // 16) * (width // 16), row by row from the top left: 196 for 224x224.
        Xu et al. 2015, equation before (1): a = {a_1, ..., a_L}.
        """
        feature_map = self.context(self.features(images))  # (B, 512, height / 16, width / 16)
        vectors: Tensor = feature_map.flatten(start_dim=2).transpose(1, 2)  # (B, L, 512)
        return vectors

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the map: four poolings of two leave one for every 16 pixels."""
        return height // 16, width // 16

    def fold_batch_norm(self) -> VGGEncoder:
        """A VGG without batch normalisation that gives the same vectors, but for rounding."""
        name = self.config.name.removesuffix("_bn")
        if name == self.config.name:
            return self
        with torch.device("meta"):  # No initial weights.
            folded = VGGEncoder(self.config.replace(name=name))
        targets = (layer for layer in folded.modules() if isinstance(layer, nn.Conv2d))
        for layer, following in pairwise([*self.features, *self.context]):
            if isinstance(layer, nn.Conv2d):
                if isinstance(following, nn.BatchNorm2d):
                    layer = fuse_conv_bn_eval(layer, following)
                target = next(targets)
                target.weight, target.bias = layer.weight, layer.bias
        return folded.eval()

    def pretrained_weights(self) -> dict[str, Tensor]:
        """Torchvision's, for width 1 and rank 1."""
        if (self.config.width, self.config.rank) != (1.0, 1.0):
            own = f"{self.config.name} of width {self.config.width} and rank {self.config.rank}"
            only = "ImageNet weights exist for width 1.0 and rank 1.0 only"
            raise UserError(f"{only}, not for {own}; give a weights file")
        return torchvision_weights(self.config.name)


def _layers(config: VGGConfig) -> list[nn.Module]:
    stages = [list(stage) for stage in _STAGES[config.name.removesuffix("_bn")]]
    stages = [[max(1, round(channels * config.width)) for channels in stage] for stage in stages]
    stages[-1][-1] = ANNOTATION_SIZE
    layers: list[nn.Module] = []
    channels_in = 3
    for index, stage in enumerate(stages):
        if index > 0:
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        for channels in stage:
            if config.rank < 1 and index > 0:
                middle = max(1, round(channels * config.rank))
                first = nn.Conv2d(channels_in, middle, 3, padding=1, bias=False)
                if not first.weight.is_meta:
                    nn.init.kaiming_normal_(first.weight, nonlinearity="linear")
                layers.append(first)
                layers += _convolution(config, middle, channels, kernel_size=1)
            else:
                layers += _convolution(config, channels_in, channels)
            channels_in = channels
    return layers


def _convolution(
    config: VGGConfig, channels_in: int, channels: int, kernel_size: int = 3, dilation: int = 1
) -> list[nn.Module]:
    """A convolution, its batch normalisation if any, and its ReLU."""
    convolution = nn.Conv2d(
        channels_in, channels, kernel_size, padding=dilation * (kernel_size // 2), dilation=dilation
    )
    assert convolution.bias is not None
    if not convolution.weight.is_meta:  # There, drawing imports torch's compiler.
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(convolution.bias)
    norm = [nn.BatchNorm2d(channels)] if config.name.endswith("_bn") else []
    return [convolution, *norm, nn.ReLU(inplace=True)]
