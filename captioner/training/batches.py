"""A training set as the loop sees it: batches, divided among processes and into parts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy


def seed_of(*numbers: int) -> int:
    """A seed of 64 bits made of several numbers."""
    return int(numpy.random.SeedSequence(numbers).generate_state(1, numpy.uint64)[0])


class Part(NamedTuple):
    """A part of a step's batch that fits into memory.

    batch: the argument of the model's `loss`. examples: the number of examples; 0 for a masked
    dummy example, so that every process takes part.
    """

    batch: Any
    examples: int


class Step(NamedTuple):
    """One process's share of a training step.

    parts: computed one after the other, before the optimiser's step.
    examples: number of examples of the whole step, over all parts and processes.
    """

    parts: Sequence[Part]
    examples: int


class Batches(Protocol):
    """A training set in batches, which depend on the epoch only and can be divided."""

    unit: ClassVar[str]
    """The name of the examples, in the plural."""

    def steps(self, epoch: int) -> int:
        """The number of batches of the epoch, the same for every epoch."""

    def shares(
        self, epoch: int, first: int, rank: int, processes: int, parts: int
    ) -> Generator[Step, None, None]:
        """The share of process `rank` of each batch, from number `first` on.

        parts: the number of parts of each share; the last ones have no examples if the batch is
        too small.
        """
