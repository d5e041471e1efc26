"""Matrix products of small inputs on a CPU, by the quicker of the libraries that torch brings.

Outside a CPU, and where a gradient is wanted, all of this is `torch.nn.functional.linear`. There,
float32 goes to oneDNN, which for small products on AMD's processors takes half the time of MKL;
and weights that are used again and again can be laid out once in the order oneDNN reads them in.
What is computed is the same, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.devices import has_bfloat16

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


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
        else:
            self._packed_once.forget()
        return linear(input, weight, self.bias)


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


def in_types_given(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The function, its products in the types of what is multiplied, whatever autocast says.

    It must be given a tensor; the device is that of the first.
    """

    @wraps(function)
    def computed(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        device = next(each.device.type for each in args if isinstance(each, Tensor))
        if not torch.is_autocast_enabled(device):
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return computed


def packed(weight: Tensor) -> Tensor:
    """A weight (O, I) for `linear` to use many times; the weight itself where that gains nothing.

    It is a copy, which does not follow when the weight changes. Weights in bfloat16 can be packed
    only for a processor that has products in it.
    """
    if weight.dtype not in (torch.float32, torch.bfloat16) or not _is_for_onednn(weight):
        return weight
    if weight.dtype == torch.bfloat16 and not has_bfloat16(weight.device):
        return weight
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    return found


class _Kept(NamedTuple):
    """What was packed, and of what.

    parameters: the tensors themselves. contents: the same without a gradient, which hold on to the
    memory that they were in, lest another tensor come to lie at its address. versions: torch's
    counts of their changes.
    """

    dtype: torch.dtype
    parameters: tuple[Tensor, ...]
    contents: tuple[Tensor, ...]
    versions: tuple[int, ...]
    packed: tuple[Tensor, ...]

    def is_of(self, parameters: Sequence[Tensor], dtype: torch.dtype) -> bool:
        """Whether it is of these parameters as they are now, in this type."""
        if self.dtype != dtype or len(self.parameters) != len(parameters):
            return False
        return all(
            given is own
            and given.dtype == content.dtype
            and given.data_ptr() == content.data_ptr()
            and given._version == version
            for given, own, content, version in zip(
                parameters, self.parameters, self.contents, self.versions, strict=True
            )
        )


class PackedOnce(nn.Module):
    """Keeps what was packed of some parameters for as long as these stay as they are.

    Looked at are which tensors they are, their place in memory, their type and torch's count of
    their changes. Torch does not count two kinds: those of an optimiser's fused step, and those
    through `Tensor.data`. So nothing is kept of parameters that have a gradient, which a step may
    change at any moment, and what was kept ends with a run with gradients, as every step of
    training has, with `train` or `eval`, and with `forget`. It is a module, without weights, for
    these to reach it inside any other. A copy keeps nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept: _Kept | None = None

    def forward(
        self,
        make: Callable[[], tuple[Tensor, ...]],
        parameters: Sequence[Tensor],
        dtype: torch.dtype,
    ) -> tuple[Tensor, ...]:
        """What `make` packs of the parameters, in a type; made anew only where one changed."""
        if torch.is_grad_enabled() or any(
            each.is_inference() or (each.is_leaf and each.grad is not None) for each in parameters
        ):
            self.forget()
            return make()
        # Another thread may forget, or keep something else, in between: hence a name of its own.
        kept = self._kept
        if kept is None or not kept.is_of(parameters, dtype):
            contents = tuple(each.detach() for each in parameters)
            versions = tuple(each._version for each in parameters)
            kept = _Kept(dtype, tuple(parameters), contents, versions, make())
            self._kept = kept
        return kept.packed

    def forget(self) -> None:
        """Keep nothing."""
        self._kept = None

    def train(self, mode: bool = True) -> PackedOnce:
        """As of any module; and nothing is kept."""
        self.forget()
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}


def forget_packed(module: nn.Module) -> None:
    """Have every `PackedOnce` in a module keep nothing."""
    for each in module.modules():
        if isinstance(each, PackedOnce):
            each.forget()


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
