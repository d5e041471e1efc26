"""Computations written out for CPUs: the same results as the plain torch code, in less time.

Only bfloat16, chosen for captioning and translating on a CPU with instructions for it, changes
results. `enabled` is the only switch; with it off every model runs plain torch code. A computation
is in this room because it takes at least a tenth off a user's work. Without it, the captioner's
training step takes 1.5 times as long (batch of 80, float32, one core), and its beam search of 32
photos at once 2.4 times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from captioner.cpu.additive import additive_scores as additive_scores
from captioner.cpu.additive import exponentials as exponentials
from captioner.cpu.products import SWITCH as SWITCH
from captioner.cpu.products import Linear as Linear
from captioner.cpu.products import enabled as enabled
from captioner.cpu.products import linear as linear
from captioner.cpu.recurrence import Recurrence as Recurrence
from captioner.cpu.recurrence import RecurrenceInputs as RecurrenceInputs
from captioner.cpu.recurrence import RecurrenceWeights as RecurrenceWeights
from captioner.devices import choose_device, has_bfloat16
from captioner.errors import UserError

_NAMES = ("auto", "float32", "bfloat16")

_PHOTOS = {torch.float32: 2, torch.bfloat16: 4}
"""Photos in a chunk that the caches hold: VGG-11 took 69 ms a photo, with 16 at once 85."""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of matrix products: `float32`, `bfloat16`, or `auto` for the faster one.

    `auto` is bfloat16 on a CPU with instructions for it, and float32 elsewhere.
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
