"""A network that can see, for development without VGG's weights: MobileNet v1.

Howard et al. 2017, batch normalisation folded into the convolutions. Block 11 gives 14x14 vectors
of 512 numbers for a photo of 224 pixels, the shape of the annotation vectors of Xu et al. 2015.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from captioner.errors import UserError


class MobileNet(nn.Module):
    """MobileNet v1 from a safetensors file of folded weights; not trained.

    channels: of tensors that must have so many. last: the block up to which it is computed.
    """

    channels: ClassVar[dict[str, int]] = {}
    last: ClassVar[int]

    def __init__(self, file: Path) -> None:
        """Read the weights.

        Raises `UserError` for a file that cannot be read, and for a tensor that it lacks or that
        does not fit the layer before it.
        """
        super().__init__()
        try:
            tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"teacher {file} cannot be read ({error})") from None
        for name, size in self.channels.items():
            if name not in tensors or tensors[name].shape[:1] != (size,):
                raise UserError(f"teacher {file} has no tensor {name!r} of {size} channels")
        self._check_layers(tensors, file)
        for name, tensor in tensors.items():
            parameter = nn.Parameter(tensor.float(), requires_grad=False)
            self.register_parameter(name.replace(".", "_"), parameter)

    def _check_layers(self, tensors: dict[str, Tensor], file: Path) -> None:
        """Raise `UserError` naming the first tensor that is missing or does not fit."""

        def check(name: str, *shape: int) -> int:
            """The channels that a layer gives. shape: of its weight, behind these."""
            for part, rest in (("weight", shape), ("bias", ())):
                full = f"{name}.{part}"
                if full not in tensors:
                    raise UserError(f"teacher {file} has no tensor {full!r}")
                found = tuple(tensors[full].shape)
                size = tensors[f"{name}.weight"].shape[:1]
                if found != (*size, *rest) or 0 in found:
                    wanted = ", ".join(map(str, (*(size or ("any",)), *rest)))
                    raise UserError(f"teacher {file}: tensor {full!r} is {found}, not ({wanted})")
            return len(tensors[f"{name}.weight"])

        channels = check("conv1", 3, 3, 3)
        for block in range(1, self.last + 1):
            if check(f"depthwise{block}", 1, 3, 3) != channels:
                raise UserError(
                    f"teacher {file}: tensor 'depthwise{block}.weight' is of "
                    f"{len(tensors[f'depthwise{block}.weight'])} channels, and gets {channels}"
                )
            channels = check(f"pointwise{block}", channels, 1, 1)
        if "logits.weight" in self.channels:
            check("logits", channels)

    def weights(self, name: str) -> tuple[Tensor, Tensor]:
        """Weight, of so many output channels as its first dimension, and bias of a layer."""
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def blocks(self, pixels: Tensor, last: int) -> Iterator[Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> what blocks 1 to `last` make of them, one by one.

        From block 6 on a map is (B, C, S/16, S/16), from block 12 on (B, C, S/32, S/32).
        """
        hidden = functional.pad(pixels * 2 - 1, (0, 1, 0, 1))  # (B, 3, S + 1, S + 1)
        hidden = functional.relu6(  # (B, C, S/2, S/2)
            functional.conv2d(hidden, *self.weights("conv1"), stride=2)
        )
        for block in range(1, last + 1):
            weight, bias = self.weights(f"depthwise{block}")
            stride = 2 if block in (2, 4, 6, 12) else 1
            # (B, C, s + 1, s + 1) or, of stride 1, (B, C, s + 2, s + 2)
            hidden = functional.pad(hidden, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))
            # (B, C, s / stride, s / stride)
            hidden = functional.conv2d(hidden, weight, bias, stride=stride, groups=len(weight))
            pointwise = self.weights(f"pointwise{block}")  # (C', C, 1, 1) and (C',)
            # (B, C', s / stride, s / stride)
            hidden = functional.relu6(functional.conv2d(functional.relu6(hidden), *pointwise))
            yield hidden


class Teacher(MobileNet):
    """What a student's maps are regressed on: blocks 11 and 12."""

    channels = {"pointwise11.weight": 512, "pointwise12.weight": 1024}  # noqa: RUF012
    last = 12

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> block 11 (B, 512, S/16, S/16), and 12."""
        block_11, block_12 = deque(self.blocks(pixels, self.last), maxlen=2)
        return block_11, block_12


class Classifier(MobileNet):
    """A whole network, with its thousand classes of ImageNet."""

    channels = {"logits.weight": 1000}  # noqa: RUF012
    last = 13

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, S, S) in [0, 1] -> logits (B, 1000)."""
        (block_13,) = deque(self.blocks(pixels, self.last), maxlen=1)  # (B, C, S/32, S/32)
        weight, bias = self.weights("logits")  # (1000, C) and (1000,)
        return functional.linear(block_13.mean(dim=(2, 3)), weight, bias)  # (B, C) -> (B, 1000)
