"""Loads items ahead, in processes that stay from epoch to epoch."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from captioner.errors import UserError

Key = TypeVar("Key")
Item = TypeVar("Item")


class Loader(Generic[Key, Item]):
    """Loads items ahead, in processes that wait for the next epoch: forked once, not every epoch.

    load: depends on the key alone, since it runs in any process.
    workers: processes that load an item ahead each, into pinned memory if there is a GPU; 0, and on
        Windows, which cannot fork: load in this process. Eight with 32 photos of 224 pixels each
        share 39 MB, of the 64 MB that Docker gives.
    """

    def __init__(self, load: Callable[[Key], Item], workers: int = 0) -> None:
        workers = workers if hasattr(os, "fork") else 0
        self._keys = _Keys()
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
        self._keys.next = keys
        for item in self._loader:
            if isinstance(item, UserError):
                raise item
            yield item


class _Keys(Sampler[Any]):
    """The keys of the next pass, which a loader that stays asks for anew."""

    next: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.next)


class _Items(Dataset[Any]):
    def __init__(self, load: Callable[[Any], Any]) -> None:
        self._load = load

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._load(key)
        except UserError as error:  # Raised here, it would carry the worker's traceback.
            return error
