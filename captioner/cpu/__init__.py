"""Computations written out for CPUs: the results of plain torch code in less time.

`is_switched_on` is the only switch; a model that is made with it off runs plain torch code. A
computation belongs here if it takes at least a tenth off a user's work. Without this room the
captioner's training step takes 1.5 times as long (batch of 80, float32, one core), its search of
one photo 2.4 times, of 32 photos 2.2 times.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from captioner.cpu.recurrence import Recurrence as Recurrence
from captioner.cpu.recurrence import additive_scores as additive_scores
from captioner.cpu.recurrence import exponentials as exponentials
from captioner.errors import UserError

SWITCH = "CAPTIONER_CPU_CODE"
"""Environment variable: `0` runs plain torch code everywhere."""
_LARGE_WEIGHT = 1 << 17  # Elements, at least: a product by oneDNN takes 15 us to begin.
_CHUNK_PHOTOS = {torch.float32: 2, torch.bfloat16: 4}
"""Photos in a chunk that fits in the caches: VGG-11 takes 69 ms a photo, and 85 with 16 at once."""


def is_switched_on() -> bool:
    """Whether a model that is made now gets the code of this room; `SWITCH` says so."""
    return os.environ.get(SWITCH) != "0"


def runs_on(device: torch.device) -> bool:
    """Whether the code of this room is for tensors on this device: a CPU.

    Not while torch compiles or exports, which takes plain torch code. On a GPU the room's code
    launches more kernels than plain torch code (not measured).
    """
    return device.type == "cpu" and not torch.compiler.is_compiling()


def in_chunks(pixels: Tensor) -> tuple[Tensor, ...]:
    """Split photos (B, 3, height, width) into chunks that a CPU encodes one by one."""
    if not runs_on(pixels.device):
        return (pixels,)
    return torch.split(pixels, _CHUNK_PHOTOS.get(pixels.dtype, len(pixels)))


class LSTMCell(nn.LSTMCell):
    """torch's `LSTMCell`, which tells its gates before their functions."""

    def gates(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """Inputs (..., I) and hidden states (..., H) -> the gates (..., 4H), in torch's order."""
        of_inputs = functional.linear(inputs, self.weight_ih, self.bias_ih)  # (..., 4H)
        return of_inputs + functional.linear(hidden, self.weight_hh, self.bias_hh)

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of inputs (4H, I) and of hidden states (4H, H), and the biases of both, (4H) each."""
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class PackedLinear(nn.Module):
    """A finished `Linear`: its only weight is packed in oneDNN's own order, and never changes.

    Float32 on a CPU. It is copied, pickled and differentiated by its inputs, but not trained,
    saved or moved to another device.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Weight (O, I) and bias (O)."""
        super().__init__()
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()

    @property
    def weight(self) -> Tensor:
        """The weight (O, I) in torch's order, a copy."""
        return self.packed.to_dense()

    def forward(self, inputs: Tensor) -> Tensor:
        """x W^T + b of (..., I) -> (..., O)."""
        inputs = inputs.float()  # An autocast region may have made it another.
        if torch.is_grad_enabled() and inputs.requires_grad:
            return functional.linear(inputs, self.weight, self.bias)
        product = torch.ops.mkldnn._linear_pointwise
        return product(inputs, self.packed, self.bias, "none", [], "")  # type: ignore[no-any-return]

    def _save_to_state_dict(self, *_: object) -> None:
        """Refuse to be saved: a file without these weights would be no model."""
        raise UserError("a model that is open for inference is not saved: load it for training")

    def __getstate__(self) -> dict[str, object]:
        """torch copies no packed tensor."""
        return {**self.__dict__, "packed": self.weight}

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = torch.ops.mkldnn._reorder_linear_weight(state["packed"])
        super().__setstate__({**state, "packed": packed})  # type: ignore[no-untyped-call]


class PackedLSTMCell(nn.Module):
    """A finished `LSTMCell`."""

    def __init__(self, cell: LSTMCell) -> None:
        super().__init__()
        self.of_inputs = PackedLinear(cell.weight_ih, cell.bias_ih)
        self.of_hidden = PackedLinear(cell.weight_hh, cell.bias_hh)
        self.biases = cell.bias_ih.detach(), cell.bias_hh.detach()

    def gates(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """See `LSTMCell.gates`."""
        return self.of_inputs(inputs) + self.of_hidden(hidden)  # type: ignore[no-any-return]

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `LSTMCell.weights`."""
        return self.of_inputs.weight, self.of_hidden.weight, *self.biases


def pack(model: nn.Module) -> None:
    """Replace the large layers of a finished model, in place, by packed ones.

    The beam of one photo then takes .58 (AVX-512) or .73 (AVX2) of the processor time, on one
    thread, that of 32 photos .81 or .89: of a beam's few rows MKL makes a fifth of the cores'
    speed. Packing the paper's decoder takes 10 ms.
    """
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, LSTMCell) and is_packable(layer.weight_hh):
                setattr(module, name, PackedLSTMCell(layer))
            elif type(layer) is nn.Linear and is_packable(layer.weight):
                setattr(module, name, PackedLinear(layer.weight, layer.bias))


def is_packable(weight: Tensor) -> bool:
    """Whether products by a finished weight (O, I) gain by packing.

    It is large, in float32 and on a CPU with AVX, with this room switched on.
    """
    is_large = weight.numel() >= _LARGE_WEIGHT and weight.dtype is torch.float32
    has_vectors = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    has_packing = torch.backends.mkldnn.is_available() and has_vectors  # type: ignore[no-untyped-call]
    return is_large and has_packing and weight.device.type == "cpu" and is_switched_on()


class Dropout(nn.Dropout):
    """torch's `Dropout`. On a CPU it draws 16 random bits a value, in a fifth of the time."""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.has_cpu_code = is_switched_on() and 0 < p < 1

    def forward(self, input: Tensor) -> Tensor:
        """(...) -> (...)."""
        if not (self.training and self.has_cpu_code and runs_on(input.device)):
            return super().forward(input)
        drawn = torch.empty(input.numel() // 4 + 1, dtype=torch.long, device=input.device)
        drawn.random_(torch.iinfo(drawn.dtype).min, None)  # All 64 bits.
        values = drawn.view(torch.int16)[: input.numel()].view(input.shape)  # (...)
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        mask = (values >= dropped - 2**15).to(input.dtype)  # (...)
        return input * mask.mul_(2**16 / (2**16 - dropped))
