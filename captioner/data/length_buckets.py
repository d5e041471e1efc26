"""Batches of examples of similar length, for teacher forcing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from captioner.data.examples import CaptionExample
from captioner.text.token_batches import collate_sources, decoder_inputs

_BATCHES_SORTED_TOGETHER = 100
"""Sorting within this many batches leaves little padding and stays random."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class CaptionBatch:
    """Captions padded to the longest with `Vocabulary.pad`.

    rows: (B,) long, the image of each caption.
    inputs: (B, T) long, fed to the decoder: start, then the words.
    targets: (B, T) long: the words, then end.
    mask: (B, T) boolean, False at the padding.
    """

    rows: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor


def length_bucketed_batches(
    lengths: Sequence[int], batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide examples into batches of similar length, in random order.

    lengths: words of each example.
    batch_size: examples a batch; one batch may have fewer.
    generator: a CPU generator.

    Returns one epoch's batches, as indices into `lengths`: shuffled, sorted by length within 100
    batches, cut, and shuffled again.
    """
    buckets = _cut(_shuffled(range(len(lengths)), generator), batch_size * _BATCHES_SORTED_TOGETHER)
    for bucket in buckets:
        bucket.sort(key=lengths.__getitem__)
    return _shuffled(_cut(list(chain(*buckets)), batch_size), generator)


def batches_by_photo(
    rows: Sequence[int], batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide examples into batches that keep a photo's captions together, in random order.

    A photo is then read once for all its captions, except where a batch ends between them.

    rows: the photo of each example. batch_size: examples a batch; one batch may have fewer.
    generator: a CPU generator.

    Returns one epoch's batches, as indices into `rows`.
    """
    of_photo: dict[int, list[int]] = {}
    for example, row in enumerate(rows):
        of_photo.setdefault(row, []).append(example)
    examples = list(chain(*_shuffled(list(of_photo.values()), generator)))
    # Shuffled, so that the smaller, noisier batch is not always the last.
    return _shuffled(_cut(examples, batch_size), generator)


def batches_by_tokens(
    lengths: Sequence[int], tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide examples into batches of at most `tokens` tokens, padding included, in random order.

    lengths: tokens of each example; of a pair, those of its longer side.
    tokens: maximum of examples times longest; a longer example gets its own batch.
    generator: a CPU generator.

    Returns one epoch's batches, as indices into `lengths`: shuffled, sorted by length, cut, and
    shuffled again. The cuts depend on the lengths alone, so every epoch has as many batches.
    """
    batches: list[list[int]] = []
    for example in sorted(_shuffled(range(len(lengths)), generator), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[example] <= tokens:
            batches[-1].append(example)
        else:
            batches.append([example])
    return _shuffled(batches, generator)


def _shuffled(items: Sequence[Item], generator: torch.Generator) -> list[Item]:
    return [items[place] for place in torch.randperm(len(items), generator=generator).tolist()]


def _cut(items: list[Item], size: int) -> list[list[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def collate(examples: Sequence[CaptionExample]) -> CaptionBatch:
    """Batch examples, one or more: adds start and end, pads to the longest."""
    targets, mask = collate_sources([example.tokens for example in examples])
    rows = torch.tensor([example.row for example in examples], dtype=torch.long)  # (B,)
    return CaptionBatch(rows, decoder_inputs(targets, mask), targets, mask)
