"""Photos and captions for small decoders, and what decoders make of them."""

from typing import Any

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.caption.base import CaptionDecoder
from captioner.decoding.protocol import TeacherForced, select_rows

WORDS, PLACES, MEMORY = 11, 9, 8
"""V, L and D."""


def photos() -> Tensor:
    return torch.randn(3, PLACES, MEMORY, generator=torch.Generator().manual_seed(1))


def captions(rows: int = 1) -> Tensor:
    """Words to feed (3, K, 4)."""
    return torch.randint(WORDS, (3, rows, 4), generator=torch.Generator().manual_seed(2))


def stepped(decoder: CaptionDecoder, memory: Memory, words: Tensor) -> TeacherForced:
    """The decoder's output for words (B, K, T), step by step."""
    batch, rows, _ = words.shape
    state = select_rows(decoder.start(memory), torch.zeros(batch, rows, dtype=torch.long))
    logits, weights = [], []
    for tokens in words.unbind(dim=2):
        step = decoder.step(tokens, state)
        state = select_rows(step.state, torch.arange(rows).expand(batch, -1))
        logits.append(step.logits)
        weights.append(step.weights)
    return TeacherForced(torch.stack(logits, dim=2), torch.stack(weights, dim=2))


def calls_of(module: Any) -> list[torch.Size]:
    """The shapes of what the module is given from now on."""
    seen: list[torch.Size] = []
    module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    return seen
