"""Fills a recipe's feature stores before training, with one process or several of one machine."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

import torch

from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import (
    SourceStore,
    extraction_progress,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
)
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore

_REPORT_SECONDS = 1.0


def default_processes(device: torch.device) -> int:
    """One for each GPU if `device` is "cuda" without a number; otherwise one."""
    if device.type == "cuda" and device.index is None:
        return max(1, torch.cuda.device_count())
    return 1


def store_recipe_features(
    recipe: CaptioningRecipe,
    device: torch.device | str = "cpu",
    processes: int = 1,
) -> dict[str, FeatureStore]:
    """Fill the stores in the recipe's `features.folder` and open them.

    device: "cuda" assigns the GPUs to the processes in turn.

    Raises `UserError` as `sources_to_store`, `SourceStore.fill` and `SourceStore.open` do, and if
    a process dies.
    """
    encoder, stores = _encoder_and_stores(recipe)
    with extraction_progress(stores.values()) as report:
        if processes == 1:
            encoder.to(device)
            for store in stores.values():
                store.fill(encoder, report=report)
        elif not all(store.finished for store in stores.values()):
            _run_workers(recipe, torch.device(device), processes, report)
    return {name: store.open() for name, store in stores.items()}


def _encoder_and_stores(recipe: CaptioningRecipe) -> tuple[Encoder, dict[str, SourceStore]]:
    sources = sources_to_store(recipe)
    encoder = seeded_encoder_of(recipe)
    return encoder, source_stores(recipe, encoder, sources)


def _run_workers(
    recipe: CaptioningRecipe,
    device: torch.device,
    processes: int,
    report: Callable[[], None],
) -> None:
    """Start the workers and wait for them; `report` is called every second.

    If a worker raises `UserError` or dies, raises `UserError`. Then, and on `KeyboardInterrupt`,
    ends the other workers; finished rows are kept.
    """
    context = multiprocessing.get_context("spawn")  # Not daemons: these may not load ahead.
    user_errors: Any = context.SimpleQueue()
    arguments = (processes, recipe, device, user_errors)
    workers = [context.Process(target=_work, args=(rank, *arguments)) for rank in range(processes)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Inherited: Ctrl-C ends this process.
    try:
        for worker in workers:
            worker.start()
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        while running := [worker for worker in workers if worker.exitcode is None]:
            wait([worker.sentinel for worker in running], timeout=_REPORT_SECONDS)
            for code in filter(None, (worker.exitcode for worker in workers)):
                if not user_errors.empty():
                    raise UserError(user_errors.get())
                how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
                raise UserError(
                    f"a process of the extraction {how}; what was done is kept: run the same "
                    "command again to go on"
                )
            report()
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _work(
    rank: int,
    ranks: int,
    recipe: CaptioningRecipe,
    device: torch.device,
    user_errors: Any,
) -> None:
    """A worker process: writes its rows with its own data and encoder."""
    parent = multiprocessing.parent_process()

    def end_without_parent() -> None:
        if parent is not None and not parent.is_alive():
            sys.exit(1)

    torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    try:
        encoder, stores = _encoder_and_stores(recipe)
        encoder.to(_device_of(device, rank))
        for store in stores.values():
            store.fill(encoder, rank, ranks, ranks, end_without_parent)
    except UserError as error:
        user_errors.put(str(error))
        sys.exit(2)


def _device_of(device: torch.device, rank: int) -> torch.device:
    """The device of a worker."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", rank % torch.cuda.device_count())
    return device
