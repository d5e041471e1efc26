"""Computations written out for CPUs: the results of plain torch code in less time.

`enabled` is the only switch; with it off every model runs plain torch code. A computation belongs
here if it takes at least a tenth off a user's work. Without this room the captioner's training step
takes 1.5 times as long (batch of 80, float32, one core), its search of one photo 2.4 times, of 32
photos 2.2 times.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.cpu.recurrence import Recurrence as Recurrence
from captioner.cpu.recurrence import additive_scores as additive_scores
from captioner.cpu.recurrence import exponentials as exponentials

SWITCH = "CAPTIONER_CPU_CODE"
"""Environment variable: `0` runs plain torch code everywhere."""
_LARGE_WEIGHT = 1 << 17  # Elements, at least: a product by oneDNN takes 15 us to begin.
_CHUNK_PHOTOS = {torch.float32: 2, torch.bfloat16: 4}
"""Photos in a chunk that fits in the caches: VGG-11 takes 69 ms a photo, and 85 with 16 at once."""


class PackedWeights(dict[nn.Parameter, tuple[tuple[int, int], Tensor]]):
    """Weights in oneDNN's own order, and the address and version of those they were packed from."""

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles are empty: torch cannot copy these tensors."""
        return PackedWeights, ()


_PACKED: ContextVar[PackedWeights | None] = ContextVar("packed weights", default=None)


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


@contextmanager
def packed_weights(kept: PackedWeights | None = None) -> Iterator[None]:
    """Let `linear` pack large weights at their first product in this region, and reuse them.

    Packing the paper's decoder takes 10 ms, and as much memory as its weights; the beam of one
    photo then takes .65 (AVX-512) to .87 (AVX2) of the time, that of 32 photos .81 to .86.

    A weight is packed again once its address or torch's count of its changes is another; a change
    through `.data` or NumPy, which torch does not count, goes unnoticed.

    kept: reused and extended; None begins an empty one. A nested region uses the outer one's.
    """
    outer = _PACKED.get()
    inner = PackedWeights() if kept is None else kept
    token = _PACKED.set(inner if outer is None else outer)
    try:
        yield
    finally:
        _PACKED.reset(token)


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b of (..., I) -> (..., O), like torch's `linear`.

    By oneDNN inside of `packed_weights`, for large weights in float32 and without a gradient.
    """
    packed = _PACKED.get()
    if packed is None or not isinstance(weight, nn.Parameter) or not _is_packable(inputs, weight):
        return functional.linear(inputs, weight, bias)
    state = weight.data_ptr(), weight._version
    packed_state, reordered = packed.get(weight, (None, weight))
    if packed_state != state:
        reordered = torch.ops.mkldnn._reorder_linear_weight(weight)
        packed[weight] = state, reordered
    return torch.ops.mkldnn._linear_pointwise(inputs, reordered, bias, "none", [], "")  # type: ignore[no-any-return]


class Linear(nn.Linear):
    """torch's `Linear`, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        return linear(input, self.weight, self.bias)


class Dropout(nn.Dropout):
    """torch's `Dropout`. On a CPU it draws 16 random bits a value, in a fifth of the time."""

    def forward(self, input: Tensor) -> Tensor:
        """(...) -> (...)."""
        if not (self.training and 0 < self.p < 1 and enabled(input.device)):
            return super().forward(input)
        drawn = torch.empty(input.numel() // 4 + 1, dtype=torch.long, device=input.device)
        drawn.random_(torch.iinfo(drawn.dtype).min, None)  # All 64 bits.
        values = drawn.view(torch.int16)[: input.numel()].view(input.shape)  # (...)
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        mask = (values >= dropped - 2**15).to(input.dtype)  # (...)
        return input * mask.mul_(2**16 / (2**16 - dropped))


def _is_packable(inputs: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can compute this product: it is large, in float32 and has no gradient."""
    if weight.numel() < _LARGE_WEIGHT or not enabled(inputs.device):
        return False
    is_plain = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or weight.is_inference()
    is_float = inputs.dtype is weight.dtype is torch.float32
    has_vectors = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    has_packing = torch.backends.mkldnn.is_available() and has_vectors  # type: ignore[no-untyped-call]
    return is_float and not is_plain and has_packing
