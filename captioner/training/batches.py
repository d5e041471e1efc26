"""A training set as the loop sees it: batches, whole or divided among processes and into parts."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Part(NamedTuple):
    """A part of a step's batch, small enough to be worked on at once.

    batch: what the model's `loss` takes. examples: how many it is the loss of; with 0 it only keeps
    a process company that has none, and adds nothing.
    """

    batch: Any
    examples: int


class Step(NamedTuple):
    """What one process does of one step.

    parts: one after the other, before the weights are changed.
    examples: of the whole step, over all its parts and all processes.
    """

    parts: Sequence[Part]
    examples: int


class Batches(Protocol):
    """The training set, cut into batches; the same for the same epoch, whoever asks."""

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has: as many as every other."""
        ...

    def batches(self, epoch: int, first: int) -> Iterable[Any]:
        """The batches of the epoch, from number `first` on."""
        ...


@runtime_checkable
class SharedBatches(Protocol):
    """A training set whose batches can be divided, among processes and into parts."""

    unit: str
    """What an example is called, in the plural."""

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has: as many as every other."""
        ...

    def shares(
        self, epoch: int, first: int, rank: int, processes: int, parts: int
    ) -> Generator[Step, None, None]:
        """What process `rank` of so many does of each batch, from number `first` on.

        parts: into how many parts its share is cut; every process has as many for every batch, the
        last ones of no examples where a batch is too small.
        """
        ...
