"""Loads data ahead in the worker processes of torch's `DataLoader`."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from captioner.errors import UserError

Key = TypeVar("Key")
Item = TypeVar("Item")


def load_ahead(
    load: Callable[[Key], Item], keys: Sequence[Key], workers: int = 0
) -> Generator[Item, None, None]:
    """Load the items of the keys, in order.

    load: depends on the key alone, since it runs in any process.
    workers: processes that load two items ahead each, into pinned memory if there is a GPU; 0, and
        on Windows, which cannot fork: load in this process.
    Raises `UserError` as `load` does, in the item's place.
    """
    workers = workers if hasattr(os, "fork") else 0
    loader = DataLoader(
        _Items(load),
        batch_size=None,
        sampler=keys,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
        pin_memory=workers > 0 and torch.cuda.is_available(),
        generator=torch.Generator(),  # By default it draws from the global one, as dropout does.
    )
    for item in loader:
        if isinstance(item, UserError):
            raise item
        yield item


def loading_workers(device: torch.device, local_ranks: int = 1) -> int:
    """The number of processes that load photos for a model on a device.

    local_ranks: processes that share the cores.
    0 on a CPU, where the model uses every core, and on MPS, where macOS cannot fork safely.
    """
    if device.type != "cuda":
        return 0
    return max(1, min(8, (os.cpu_count() or 1) // local_ranks))


class _Items(Dataset[Any]):
    def __init__(self, load: Callable[[Any], Any]) -> None:
        self._load = load

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._load(key)
        except UserError as error:  # Raised here, it would carry the worker's traceback.
            return error
