"""Pairs of sentences side by side: what one training step sees."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TranslationBatch(NamedTuple):
    """Pairs of sentences, each side padded to its longest.

    source: (B, S) tokens to read, `<end>` last. source_mask: (B, S) boolean, False for padding,
    which is behind the tokens.
    inputs: (B, T) tokens fed in, `<start>` first. targets: (B, T) tokens to say, `<end>` last.
    mask: (B, T) boolean, False for padding.
    """

    source: Tensor
    source_mask: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor

    def to(self, device: torch.device | str) -> TranslationBatch:
        """The batch on another device."""
        return TranslationBatch(*(tensor.to(device, non_blocking=True) for tensor in self))
