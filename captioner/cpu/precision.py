"""How a model runs fastest: the type of its products, and the photos in a chunk."""

from __future__ import annotations

import torch
from torch import Tensor

from captioner.cpu.switch import enabled
from captioner.devices import choose_device, has_bfloat16
from captioner.errors import UserError

_NAMES = ("auto", "float32", "bfloat16")

_PHOTOS = {torch.float32: 2, torch.bfloat16: 4}
"""Photos in a chunk that the caches hold: VGG-11 took 69 ms a photo, with 16 at once 85."""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of matrix products: `float32`, `bfloat16`, or `auto` for the faster one.

    `auto` is bfloat16 on a CPU with instructions for it, and float32 elsewhere.
    Raises `UserError` for an unknown name.
    """
    if name not in _NAMES:
        raise UserError(f"precision {name!r} is not one of {', '.join(_NAMES)}")
    if name == "auto":
        name = "bfloat16" if enabled(device) and has_bfloat16(device) else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def default_machine() -> str:
    """The device and the precision of commands, as text: "cpu, in bfloat16"."""
    device = choose_device()
    return f"{device}, in {choose_precision('auto', device)}".replace("torch.", "")


def in_chunks(pixels: Tensor) -> tuple[Tensor, ...]:
    """Photos (B, 3, height, width) in chunks, of which a CPU encodes one at a time."""
    if not enabled(pixels.device):
        return (pixels,)
    return torch.split(pixels, _PHOTOS.get(pixels.dtype, len(pixels)))
