"""Training sets in batches: divided among processes, loaded ahead by others."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from captioner.errors import UserError

Key = TypeVar("Key")
Item = TypeVar("Item")
Batch = TypeVar("Batch")

Place = tuple[int, int]  # An epoch, and the number of a batch in it.


class Loader(Generic[Key, Item]):
    """Loads items ahead, in processes that wait for the next epoch: forked once.

    load: depends on the key alone, since it runs in any process.
    workers: processes that load an item ahead each, into pinned memory if there is a GPU; 0, and on
        Windows, which cannot fork: load in this process. Eight with 32 photos of 224 pixels each
        share 39 MB, of the 64 MB that Docker gives.
    """

    def __init__(self, load: Callable[[Key], Item], workers: int = 0) -> None:
        workers = workers if hasattr(os, "fork") else 0
        self._keys: list[Key] = []  # Of the epoch: a persistent loader iterates over it again.
        self._loader = DataLoader(
            _Items(load),
            batch_size=None,
            sampler=self._keys,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
            prefetch_factor=1 if workers else None,
            persistent_workers=workers > 0,
            pin_memory=workers > 0 and torch.cuda.is_available(),
            generator=torch.Generator(),  # The default is the global one, dropout's.
        )

    def __call__(self, keys: Iterable[Key]) -> Generator[Item, None, None]:
        """The items of the keys, in order; one call at a time."""
        self._keys[:] = keys
        for item in self._loader:
            if isinstance(item, UserError):
                raise item
            yield item


class _Items(Dataset[Item | UserError], Generic[Key, Item]):
    def __init__(self, load: Callable[[Key], Item]) -> None:
        self._load = load

    def __getitem__(self, key: Key) -> Item | UserError:
        try:
            return self._load(key)
        except UserError as error:  # Raised here, it would carry the worker's traceback.
            return error


class Batches(ABC, Generic[Item, Batch]):
    """A training set in batches, which depend on the epoch only and can be divided.

    A part is the argument of the model's `loss`, and has `to(device)`. `share`: of the batch's
    examples, 0 for a fully masked dummy, so that every process takes part; 1 if it has none.
    workers: processes that load ahead (see `Loader`).
    """

    workers: int = 0

    @abstractmethod
    def plan(self, epoch: int) -> list[list[Item]]:
        """The examples of each batch of an epoch; every epoch has as many batches and examples."""

    @abstractmethod
    def part(self, examples: list[Item], part: int, part_count: int, place: Place) -> Batch:
        """A part of a batch at a place; one without examples is a fully masked dummy."""

    def finish(self, part: Batch) -> Batch:
        """A part as the loss takes it, in the process that trains."""
        return part

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def example_count(self) -> int:
        """The examples of an epoch."""
        return sum(self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(batch) for batch in self._planned(0)]

    @cached_property
    def _planned(self) -> Callable[[int], list[list[Item]]]:
        return lru_cache(maxsize=1)(self.plan)  # That of COCO takes a second.

    def batches(
        self, epoch: int, first: int = 0, parts: Sequence[int] = (0,), part_count: int = 1
    ) -> Generator[list[Batch], None, None]:
        """Yield, for each batch of an epoch from number `first` on, the parts of these numbers."""
        plan = self._planned(epoch)
        places = [(epoch, number) for number in range(first, len(plan))]
        keys = [(plan[place[1]], parts, part_count, place) for place in places]
        for loaded in self._loader(keys):
            yield [self.finish(part) for part in loaded]

    @cached_property
    def _loader(self) -> Loader[tuple[list[Item], Sequence[int], int, Place], list[Batch]]:
        return Loader(self._load, self.workers)

    def _load(self, key: tuple[list[Item], Sequence[int], int, Place]) -> list[Batch]:
        examples, parts, part_count, place = key
        return [self.part(examples, part, part_count, place) for part in parts]


AnyBatches = Batches[Any, Any]
