"""Batches of captions, or pairs of sentences, of about the same length, for teacher forcing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.data.examples import CaptionExample
from captioner.errors import UserError
from captioner.text.vocabulary import Vocabulary

_BATCHES_SORTED_TOGETHER = 100
"""Sorting this many batches' worth of examples leaves little padding and much chance."""


@dataclass(frozen=True)
class CaptionBatch:
    """Captions side by side, padded to the longest of them.

    rows: (B,) long, the image of each caption.
    inputs: (B, T) long, what the decoder is fed: start, then the words.
    targets: (B, T) long, what it is to answer at each step: the words, then end.
    lengths: (B,) long, the steps of each caption: its words and one. T is the largest.

    Behind its length a caption has `Vocabulary.pad`, in inputs and targets.
    """

    rows: Tensor
    inputs: Tensor
    targets: Tensor
    lengths: Tensor

    @property
    def mask(self) -> Tensor:
        """(B, T) boolean, True at the steps of a caption and False at the padding."""
        steps = torch.arange(self.inputs.shape[1], device=self.lengths.device)  # (T,)
        return steps < self.lengths.unsqueeze(1)  # (B, T)


def length_bucketed_batches(
    lengths: Sequence[int], batch_size: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide examples into batches of about equal length, in a random order.

    lengths: the number of words of each example.
    batch_size: examples a batch; one batch may have fewer.
    generator: where the chance comes from; a CPU generator.

    Gives the batches of one epoch, as indices into `lengths`; every example is in exactly one.
    The examples are shuffled, sorted by length a hundred batches' worth at a time, and cut; then
    the batches are shuffled. Raises `UserError` when `batch_size` is below 1.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
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
    """Divide examples into batches in which the captions of a photo are together.

    So a photo that is read in the step is read once for all its captions, but where a batch is
    full amid them. Photos come in a random order.

    rows: the photo of each example. batch_size: examples a batch; one batch may have fewer.
    generator: where the chance comes from; a CPU generator.

    Gives the batches of one epoch, as indices into `rows`; every example is in exactly one. Raises
    `UserError` when `batch_size` is below 1.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is not at least 1")
    of_photo: dict[int, list[int]] = {}
    for example, row in enumerate(rows):
        of_photo.setdefault(row, []).append(example)
    photos = list(of_photo.values())
    places = torch.randperm(len(photos), generator=generator).tolist()
    shuffled = [example for place in places for example in photos[place]]
    batches = [shuffled[at : at + batch_size] for at in range(0, len(shuffled), batch_size)]
    # A smaller batch need not be the last one: the weights would end with its noise.
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[index] for index in order]


def batches_by_tokens(
    lengths: Sequence[int], tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide examples into batches of about so many tokens, padding included, in a random order.

    lengths: the tokens of each example; of a pair, those of its longer side.
    tokens: what a batch may have at most, its examples times the longest of them; an example that
        is longer by itself makes a batch of its own.
    generator: where the chance comes from; a CPU generator.

    Gives the batches of one epoch, as indices into `lengths`; every example is in exactly one.
    Examples are sorted by length, those of one length in random order, and cut; then the batches
    are shuffled. Where it is cut depends on the lengths alone, so every epoch has as many batches.
    Raises `UserError` when `tokens` is below 1.
    """
    if tokens < 1:
        raise UserError(f"batch size {tokens} in tokens is not at least 1")
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
    """Put examples into one batch: start and end added, padded to the longest.

    Raises `ValueError` without examples.
    """
    if not examples:
        raise ValueError("a batch needs at least one example")
    lengths = [len(example.tokens) + 1 for example in examples]
    shape = (len(examples), max(lengths))
    inputs = torch.full(shape, Vocabulary.pad, dtype=torch.long)  # (B, T)
    targets = torch.full(shape, Vocabulary.pad, dtype=torch.long)  # (B, T)
    for place, (example, length) in enumerate(zip(examples, lengths, strict=True)):
        inputs[place, :length] = torch.tensor([Vocabulary.start, *example.tokens])
        targets[place, :length] = torch.tensor([*example.tokens, Vocabulary.end])
    rows = torch.tensor([example.row for example in examples], dtype=torch.long)  # (B,)
    return CaptionBatch(rows, inputs, targets, torch.tensor(lengths, dtype=torch.long))
