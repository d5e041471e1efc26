"""A network that can see, for development without VGG's weights: MobileNet v1 up to block 12.

Howard et al. 2017, batch normalisation folded into the convolutions. Block 11 gives 14x14 vectors
of 512 numbers for a photo of 224 pixels, the shape of the annotation vectors of Xu et al. 2015.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from captioner.errors import UserError


class Teacher(nn.Module):
    """MobileNet v1 up to block 12, from a safetensors file of folded weights; not trained."""

    def __init__(self, file: Path) -> None:
        """Read the weights. Raises `UserError` for a file that cannot be read."""
        super().__init__()
        try:
            tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"teacher {file} cannot be read ({error})") from None
        for name, tensor in tensors.items():
            parameter = nn.Parameter(tensor.float(), requires_grad=False)
            self.register_parameter(name.replace(".", "_"), parameter)

    def _weights(self, name: str) -> tuple[Tensor, Tensor]:
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S) in [0, 1] -> block 11 (B, 512, S/16, S/16), and 12."""
        hidden = functional.pad(pixels * 2 - 1, (0, 1, 0, 1))  # (B, 3, S + 1, S + 1)
        hidden = functional.relu6(functional.conv2d(hidden, *self._weights("conv1"), stride=2))
        block_11 = hidden
        for block in range(1, 13):
            weight, bias = self._weights(f"depthwise{block}")
            stride = 2 if block in (2, 4, 6, 12) else 1
            hidden = functional.pad(hidden, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))
            hidden = functional.conv2d(hidden, weight, bias, stride=stride, groups=len(weight))
            pointwise = self._weights(f"pointwise{block}")
            hidden = functional.relu6(functional.conv2d(functional.relu6(hidden), *pointwise))
            if block == 11:
                block_11 = hidden
        return block_11, hidden
