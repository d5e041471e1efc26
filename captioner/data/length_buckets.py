"""Batches of examples of similar length, for teacher forcing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.data.examples import CaptionExample
from captioner.text.token_batches import collate_sources, decoder_inputs

_BATCHES_SORTED_TOGETHER = 100
"""Sorting within this many batches leaves little padding and stays random."""


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
    shuffled: list[int] = torch.randperm(len(lengths), generator=generator).tolist()
    bucket_size = batch_size * _BATCHES_SORTED_TOGETHER
    batches: list[list[int]] = []
    for bucket_start in range(0, len(shuffled), bucket_size):
        bucket = shuffled[bucket_start : bucket_start + bucket_size]
        bucket.sort(key=lambda example: lengths[example])
        batches.extend(
            bucket[start : start + batch_size] for start in range(0, len(bucket), batch_size)
        )
    order: list[int] = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[index] for index in order]


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
    photos = list(of_photo.values())
    places = torch.randperm(len(photos), generator=generator).tolist()
    shuffled = [example for place in places for example in photos[place]]
    batches = [shuffled[at : at + batch_size] for at in range(0, len(shuffled), batch_size)]
    # Shuffled, so that the smaller, noisier batch is not always the last.
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[index] for index in order]


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
    shuffled: list[int] = torch.randperm(len(lengths), generator=generator).tolist()
    shuffled.sort(key=lambda example: lengths[example])
    batches: list[list[int]] = []
    for example in shuffled:
        if batches and (len(batches[-1]) + 1) * lengths[example] <= tokens:
            batches[-1].append(example)
        else:
            batches.append([example])
    order: list[int] = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[index] for index in order]


def collate(examples: Sequence[CaptionExample]) -> CaptionBatch:
    """Batch examples, one or more: adds start and end, pads to the longest."""
    targets, mask = collate_sources([example.tokens for example in examples])
    rows = torch.tensor([example.row for example in examples], dtype=torch.long)  # (B,)
    return CaptionBatch(rows, decoder_inputs(targets, mask), targets, mask)
