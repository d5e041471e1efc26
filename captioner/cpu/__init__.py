"""Computations written out for CPUs: the results of plain torch code in less time.

`enabled` is the only switch; with it off every model runs plain torch code. A computation belongs
here if it takes at least a tenth off a user's work. Without this room the captioner's training step
takes 1.5 times as long (batch of 80, float32, one core), and its search of 32 photos 2.4 times.
"""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.cpu.recurrence import Recurrence as Recurrence
from captioner.cpu.recurrence import additive_scores as additive_scores
from captioner.cpu.recurrence import exponentials as exponentials

SWITCH = "CAPTIONER_CPU_CODE"
"""Environment variable: `0` runs plain torch code everywhere."""
_FEW_ROWS = range(2, 33)  # The transposed product is faster for these, by up to four times.
_LARGE_WEIGHT = 1 << 19  # Elements, at least: a smaller weight stays in a core's own cache.
_CHUNK_PHOTOS = {torch.float32: 2, torch.bfloat16: 4}
"""Photos in a chunk that fits in the caches: VGG-11 takes 69 ms a photo, and 85 with 16 at once."""


def enabled(device: torch.device) -> bool:
    """Whether to run the code of this room for tensors on this device.

    True on a CPU, unless the environment variable `SWITCH` is `0`; it is read at every call. On a
    GPU the room's code launches more kernels than plain torch code (not measured).
    """
    return device.type == "cpu" and os.environ.get(SWITCH) != "0"


def in_chunks(pixels: Tensor) -> tuple[Tensor, ...]:
    """Split photos (B, 3, height, width) into chunks that a CPU encodes one by one."""
    if not enabled(pixels.device):
        return (pixels,)
    return torch.split(pixels, _CHUNK_PHOTOS.get(pixels.dtype, len(pixels)))


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b of (..., I) -> (..., O), like torch's `linear`.

    A few rows and large weights, without a gradient, are computed as (W x^T + b)^T: torch's kernels
    for W x^T split the rows of W among the cores, those for x W^T the few rows of x. That halves
    the time of the paper's beam of one photo with 10,000 words.
    """
    rows = inputs.numel() // inputs.shape[-1]
    is_plain = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu")
    is_small = weight.numel() < _LARGE_WEIGHT or rows not in _FEW_ROWS
    if is_plain or is_small or not enabled(inputs.device):
        return functional.linear(inputs, weight, bias)
    outputs = (weight @ inputs.reshape(rows, -1).t()).t().contiguous()  # (N, O)
    if bias is not None:
        outputs += bias
    return outputs.view(*inputs.shape[:-1], -1)  # (..., O)


class Linear(nn.Linear):
    """torch's `Linear`, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        return linear(input, self.weight, self.bias)
