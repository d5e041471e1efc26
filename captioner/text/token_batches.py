"""Padded batches of captions, of source tokens, and of sentence pairs for training."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from captioner.text.vocabulary import Vocabulary


class PairExample(NamedTuple):
    """The token indices of a pair, without start and end."""

    source: Sequence[int]
    target: Sequence[int]


class TranslationBatch(NamedTuple):
    """Pairs of sentences, each side padded at the end to its longest; masks are False there."""

    source: Tensor  # (B, S), `<end>` last.
    source_mask: Tensor  # (B, S) boolean.
    inputs: Tensor  # (B, T) of the decoder, `<start>` first.
    targets: Tensor  # (B, T), `<end>` last.
    mask: Tensor  # (B, T) boolean.
    share: float = 1.0  # Share of the step's target tokens; 0: a fully masked dummy.

    def to(self, device: torch.device | str) -> "TranslationBatch":
        """Copy to another device, but for the source's mask, from which encoders read lengths."""
        names = ("source", "inputs", "targets", "mask")
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return self._replace(**moved)


def collate_sources(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Append `<end>` to sources, pad them: tokens (B, S), mask (B, S), False at padding."""
    rows = [torch.tensor([*source, Vocabulary.end]) for source in sources]
    tokens = pad_sequence(rows, batch_first=True, padding_value=Vocabulary.pad)  # (B, S)
    lengths = torch.tensor([len(row) for row in rows])  # (B,)
    return tokens, torch.arange(tokens.shape[1]) < lengths.unsqueeze(1)  # (B, S) both


def decoder_inputs(targets: Tensor) -> Tensor:
    """Shift targets (..., T) by one step, behind `<start>`."""
    return functional.pad(targets[..., :-1], (1, 0), value=Vocabulary.start)  # (..., T)


def collate_captions(captions: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Batch the word indices of captions: (B, T) decoder inputs, targets and mask.

    Inputs begin with `<start>`, targets end with `<end>`; the mask is False at the padding.
    """
    targets, mask = collate_sources(captions)
    return decoder_inputs(targets), targets, mask


def collate_pairs(examples: Sequence[PairExample]) -> TranslationBatch:
    """Batch pairs, one or more: adds start and end, pads each side to its longest."""
    source, source_mask = collate_sources([example.source for example in examples])
    inputs, targets, mask = collate_captions([example.target for example in examples])  # (B, T)
    return TranslationBatch(source, source_mask, inputs, targets, mask)
