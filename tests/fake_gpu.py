"""A GPU that is not there: torch's `FakeTensorMode` makes tensors without values of any device.

It refuses operations on tensors of two devices. `fake_gpu` also refuses what a real GPU makes slow
or lacks. Tensors on the CPU are real.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("cuda", 0)

_READ = torch.ops.aten._local_scalar_dense.default
_GRU = torch.ops.aten._thnn_fused_gru_cell.default
_PACK = torch.ops.aten._pack_padded_sequence.default
_COPY = torch.ops.aten._to_copy.default
_INDEX_PUT = torch.ops.aten.index_put_.default
_MULTINOMIAL = torch.ops.aten.multinomial.default


class EndOfAnswers(Exception):  # noqa: N818 - control flow, not an error
    """Raised at a read for which there is no answer."""


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, Tensor)]


class Operations(TorchDispatchMode):
    """Refuses copies from the GPU, reads of values, and float64, which MPS lacks.

    And `torch.multinomial`, which reads whether its probabilities are sound.

    is_busy: whether the GPU has work queued. Copies to it that wait for that work are refused then:
        those without `non_blocking`, and lists and numbers given as an index and its values.
    """

    def __init__(
        self, answers: Sequence[Any] | None, allowed: Sequence[str], device: torch.device
    ) -> None:
        super().__init__()
        self.device = device
        self.answers = None if answers is None else list(answers)
        self.allowed = allowed
        self.is_busy = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_real = not any(isinstance(each, FakeTensor) for each in _tensors((args, kwargs)))
        if is_real and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            with unset_fake_temporarily():
                return function(*args, **kwargs)
        if function is _READ:
            assert self.answers is not None, "a value is read"
            if not self.answers:
                raise EndOfAnswers
            return self.answers.pop(0)
        if function is _GRU:  # It has no fake form.
            return torch.empty_like(args[2]), torch.empty_like(args[0])
        if function is _PACK:  # The sizes depend on lengths, which fake tensors do not read.
            with unset_fake_temporarily():
                packed, sizes = function(torch.zeros(args[0].shape), *args[1:])
            return args[0].new_empty(packed.shape), sizes
        assert function is not _MULTINOMIAL, "multinomial reads its input"
        if self.is_busy:
            assert not self._waits(function, args, kwargs), f"{function} waits to copy to the GPU"
        result = function(*args, **kwargs)
        for made in _tensors(result):
            on_gpu = made.device == self.device
            assert on_gpu or "copies" in self.allowed, f"{function} copies from the GPU"
            if on_gpu and made.dtype == torch.float64:
                assert "float64" in self.allowed, f"{function} makes float64"
        return result

    def _waits(self, function: Any, args: Any, kwargs: Any) -> bool:
        """Whether an operation waits for the GPU's queue before it copies to the GPU."""
        if function is _COPY:
            to_gpu = args[0].device.type == "cpu" and torch.device(kwargs["device"]) == self.device
            return to_gpu and not kwargs.get("non_blocking", False)
        return function is _INDEX_PUT and any(each.device.type == "cpu" for each in _tensors(args))


class _Calls(TorchFunctionMode):
    """Refuses generators of another device than the result's, and recurrence under autocast.

    Autocast casts cuDNN's recurrent networks to float16.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function.__name__ in ("lstm", "gru"):
            assert not torch.is_autocast_enabled("cuda"), "recurrence under autocast"
        generator = kwargs.get("generator")
        if generator is None or generator.device.type == "cpu":
            result = function(*args, **kwargs)
        else:  # Fake tensors take none.
            result = function(*args, **{**kwargs, "generator": None})
        if generator is not None:
            assert all(each.device == generator.device for each in _tensors(result))
        return result


class _Generator(torch.Generator):
    """A generator that may say it is of the GPU."""

    said: torch.device

    def __new__(cls, device: Any = "cpu") -> _Generator:
        generator = super().__new__(cls)
        generator.said = DEVICE if torch.device(device).type == "cuda" else torch.device("cpu")
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.said


@contextmanager
def fake_gpu(
    in_bfloat16: bool = False,
    answers: Sequence[Any] | None = None,
    allowed: Sequence[str] = (),
    device: torch.device = DEVICE,
) -> Iterator[Operations]:
    """Within it, the device can be used, and is watched by the `Operations`.

    in_bfloat16: under autocast. answers: what reads of values give, in order; then `EndOfAnswers`
        is raised. None allows no reads. allowed: of `copies` from the GPU and `float64`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "Generator", _Generator)
        # `torch.autocast` does nothing where there is no CUDA.
        was_enabled, kind = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", in_bfloat16)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        operations = Operations(answers, allowed, device)
        try:
            # With cuDNN, torch asks the GPU for its version.
            without_cudnn = torch.backends.cudnn.flags(enabled=False)
            fake = FakeTensorMode(allow_non_fake_inputs=True)
            with without_cudnn, fake, operations, _Calls():
                yield operations
        finally:
            torch.clear_autocast_cache()
            torch.set_autocast_enabled("cuda", was_enabled)
            torch.set_autocast_dtype("cuda", kind)
