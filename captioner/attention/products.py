"""Matrix products of small inputs on a CPU, by the quicker of the libraries that torch brings.

Outside a CPU, and where a gradient is wanted, all of this is `torch.nn.functional.linear`. There,
float32 goes to oneDNN, which for small products on AMD's processors takes half the time of MKL;
and weights that are used again and again can be laid out once in the order oneDNN reads them in.
What is computed is the same, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`, its weight packed while no gradient is wanted."""

    def __init__(self, input_size: int, output_size: int, bias: bool = True) -> None:
        super().__init__(input_size, output_size, bias)
        self._packed_once = PackedOnce()

    def forward(self, input: Tensor) -> Tensor:
        """(..., input size) -> (..., output size)."""
        weight = self.weight
        if _is_for_onednn(weight):
            computed = as_computed(weight[:0]).dtype
            (weight,) = self._packed_once(
                lambda: (packed(as_computed(weight)),), [weight], computed
            )
        return linear(input, weight, self.bias)

    def train(self, mode: bool = True) -> Linear:
        """As of any module; what was packed is let go when training begins."""
        if mode:
            self._packed_once.forget()
        return super().train(mode)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b: input x (..., I), weight W (O, I), plain or `packed`, bias b (O) -> (..., O)."""
    if weight.is_mkldnn:
        if input.numel() == 0:
            return input.new_empty(*input.shape[:-1], weight.shape[0], dtype=weight.dtype)
        bias = None if bias is None else bias.to(weight.dtype)
        return _onednn(input.to(weight.dtype), weight, bias)
    if (
        weight.dtype == input.dtype == torch.float32
        and input.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and _is_for_onednn(weight)
    ):
        return _onednn(input, weight, bias)
    return functional.linear(input, weight, bias)


def as_computed(tensor: Tensor) -> Tensor:
    """The tensor in the type that autocast would cast it to at every use; as it is without."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device):
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def packed(weight: Tensor) -> Tensor:
    """A weight (O, I) for `linear` to use many times; the weight itself where that gains nothing.

    It is a copy, which does not follow when the weight changes.
    """
    if weight.dtype not in (torch.float32, torch.bfloat16) or not _is_for_onednn(weight):
        return weight
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    return found


class PackedOnce:
    """Keeps what was packed of some parameters for as long as these stay as they are.

    They are looked at by place in memory, type and torch's count of changes; what is changed
    behind torch's back, through `Tensor.data`, must be followed by `forget`. A copy keeps nothing.
    """

    def __init__(self) -> None:
        self._kept: tuple[Any, tuple[Tensor, ...]] | None = None

    def __call__(
        self, make: Callable[[], tuple[Tensor, ...]], parameters: Sequence[Tensor], dtype: Any
    ) -> tuple[Tensor, ...]:
        """What `make` packs of the parameters, in a type; made anew only where one changed."""
        if torch.is_grad_enabled() or any(each.is_inference() for each in parameters):
            return make()
        state = dtype, [(each.data_ptr(), each.dtype, each._version) for each in parameters]
        if self._kept is None or self._kept[0] != state:
            self._kept = state, make()
        return self._kept[1]

    def forget(self) -> None:
        """Keep nothing."""
        self._kept = None

    def __reduce__(self) -> tuple[type[PackedOnce], tuple[()]]:
        return PackedOnce, ()


def _is_for_onednn(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and not torch.is_grad_enabled()
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _onednn(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return found
