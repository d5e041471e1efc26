"""Tokens side by side: sources, and the pairs of sentences that one training step sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captioner.text.vocabulary import Vocabulary


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


def collate_sources(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sources side by side, each with its end: tokens (B, S) and their mask (B, S).

    Padded behind with `Vocabulary.pad`, where the mask is False. Raises `ValueError` without one.
    """
    if not sources:
        raise ValueError("a batch needs at least one example")
    longest = max(map(len, sources)) + 1
    tokens = torch.full((len(sources), longest), Vocabulary.pad, dtype=torch.long)  # (B, S)
    for place, source in enumerate(sources):
        tokens[place, : len(source) + 1] = torch.tensor([*source, Vocabulary.end])
    lengths = torch.tensor([len(source) + 1 for source in sources])  # (B,)
    return tokens, torch.arange(longest) < lengths.unsqueeze(1)  # (B, S) both
