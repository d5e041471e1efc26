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

    channels: of tensors that the file must have.
    """

    channels: ClassVar[dict[str, int]] = {}

    def __init__(self, file: Path) -> None:
        """Read the weights. Raises `UserError` for a file that cannot be read."""
        super().__init__()
        try:
            tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"teacher {file} cannot be read ({error})") from None
        for name, size in self.channels.items():
            if name not in tensors or len(tensors[name]) != size:
                raise UserError(f"teacher {file} has no tensor {name!r} of {size} channels")
        for name, tensor in tensors.items():
            parameter = nn.Parameter(tensor.float(), requires_grad=False)
            self.register_parameter(name.replace(".", "_"), parameter)

    def weights(self, name: str) -> tuple[Tensor, Tensor]:
        """Weight and bias of a layer."""
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def blocks(self, pixels: Tensor, last: int) -> Iterator[Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> what blocks 1 to `last` make of them, one by one.

        From block 6 on a map is (B, C, S/16, S/16), from block 12 on (B, C, S/32, S/32).
        """
        hidden = functional.pad(pixels * 2 - 1, (0, 1, 0, 1))  # (B, 3, S + 1, S + 1)
        hidden = functional.relu6(functional.conv2d(hidden, *self.weights("conv1"), stride=2))
        for block in range(1, last + 1):
            weight, bias = self.weights(f"depthwise{block}")
            stride = 2 if block in (2, 4, 6, 12) else 1
            hidden = functional.pad(hidden, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))
            hidden = functional.conv2d(hidden, weight, bias, stride=stride, groups=len(weight))
            pointwise = self.weights(f"pointwise{block}")
            hidden = functional.relu6(functional.conv2d(functional.relu6(hidden), *pointwise))
            yield hidden


class Teacher(MobileNet):
    """What a student's maps are regressed on: blocks 11 and 12."""

    channels = {"pointwise11.weight": 512, "pointwise12.weight": 1024}  # noqa: RUF012

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> block 11 (B, 512, S/16, S/16), and 12."""
        block_11, block_12 = deque(self.blocks(pixels, 12), maxlen=2)
        return block_11, block_12


class Classifier(MobileNet):
    """A whole network, with its thousand classes of ImageNet."""

    channels = {"logits.weight": 1000}  # noqa: RUF012

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, S, S) in [0, 1] -> logits (B, 1000)."""
        (block_13,) = deque(self.blocks(pixels, 13), maxlen=1)
        weight, bias = self.weights("logits")
        return functional.linear(block_13.mean(dim=(2, 3)), weight, bias)
