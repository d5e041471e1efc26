"""Batches of a recipe's training pairs, divided among processes and into parts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import torch

from captioner.data.length_buckets import batches_by_tokens
from captioner.data.loading import load_ahead
from captioner.data.pairs import PairExample, collate_pairs
from captioner.training import MicroBatch, Step, seed_of


@dataclass(frozen=True)
class TranslationBatches:
    """Batches of pairs of similar length.

    tokens: of a batch, padding included, on the longer side of its pairs. seed: of the order.
    workers: see `load_ahead`.

    Implements `captioner.training.Batches`. Counts target tokens as examples, since the loss
    is a mean over tokens: the gradient does not depend on how a batch is divided.
    """

    unit: ClassVar[str] = "tokens"
    examples: list[PairExample]
    tokens: int
    seed: int = 0
    workers: int = 0

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch, the same for every epoch."""
        return self._steps

    def batches(
        self, epoch: int, first: int, rank: int, world_size: int, micro_batches: int
    ) -> Generator[Step, None, None]:
        """The part of process `rank` of each batch, from number `first` on."""
        cuts = range(rank, micro_batches * world_size, world_size)
        load = partial(self._step, cuts, micro_batches * world_size)
        yield from load_ahead(load, self._plan(epoch)[first:], self.workers)

    def _step(self, cuts: Sequence[int], all_cuts: int, indices: Sequence[int]) -> Step:
        """Collate the parts `cuts` of a batch, given by the indices of its examples."""
        chosen = [self.examples[index] for index in indices]
        return Step([self._part(chosen, cut, all_cuts) for cut in cuts], _tokens(chosen))

    @cached_property
    def _steps(self) -> int:
        return len(self._plan(0))

    def _plan(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
        lengths = [example.length for example in self.examples]
        return batches_by_tokens(lengths, self.tokens, generator)

    def _part(self, examples: list[PairExample], cut: int, cuts: int) -> MicroBatch:
        """Part number `cut` of the pairs; a fully masked dummy pair if it has none."""
        part = examples[cut::cuts]  # Lengths are spread evenly.
        batch = collate_pairs(part or examples[:1])
        if not part:
            batch = batch._replace(mask=torch.zeros_like(batch.mask))
        return MicroBatch(batch, _tokens(part))


def _tokens(examples: list[PairExample]) -> int:
    """The number of target tokens, ends included."""
    return sum(len(example.target) + 1 for example in examples)
