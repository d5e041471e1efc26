"""Fills a recipe's feature stores with several processes of one machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

import torch

from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import (
    seeded_encoder_of,
    source_stores,
    sources_to_store,
)

_REPORT_SECONDS = 1.0


def default_processes(device: torch.device) -> int:
    """One for each GPU if `device` is "cuda" without a number; otherwise one."""
    if device.type == "cuda" and device.index is None:
        return max(1, torch.cuda.device_count())
    return 1


def fill_with_workers(
    recipe: CaptioningRecipe,
    splits: Sequence[str],
    device: torch.device,
    processes: int,
    report: Callable[[], None],
) -> None:
    """Fill the stores of a recipe with several processes, and wait for them.

    splits: as for `sources_to_store`. report: called every second.
    device: of the workers; "cuda" assigns the GPUs in turn.

    If a worker raises `UserError` or dies, raises `UserError`. Then, and on `KeyboardInterrupt`,
    ends the other workers; finished rows are kept.
    """
    context = multiprocessing.get_context("spawn")  # Not daemons: these may not load ahead.
    user_errors: Any = context.SimpleQueue()
    workers = [
        context.Process(
            target=_work,
            args=(user_errors, recipe, splits, str(_device_of(device, rank)), rank, processes),
            name=f"features-{rank}",
        )
        for rank in range(processes)
    ]
    try:
        with _interrupts_ignored():
            for worker in workers:
                worker.start()
        while running := [worker for worker in workers if worker.exitcode is None]:
            wait([worker.sentinel for worker in running], timeout=_REPORT_SECONDS)
            for worker in workers:
                if worker.exitcode:
                    raise _failure(worker.pid, worker.exitcode, user_errors)
            report()
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.terminate()
                worker.join()


def _failure(process: int | None, code: int, user_errors: Any) -> UserError:
    if not user_errors.empty():
        return UserError(user_errors.get())
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return UserError(
        f"process {process} of the extraction {how}; what was done is kept: run the same command "
        "again to go on"
    )


def _work(
    user_errors: Any,
    recipe: CaptioningRecipe,
    splits: Sequence[str],
    device: str,
    rank: int,
    ranks: int,
) -> None:
    """A worker process: writes its rows with its own data and encoder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends this one.
    parent = multiprocessing.parent_process()

    def end_without_parent() -> None:
        if parent is not None and not parent.is_alive():
            sys.exit(1)

    torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    try:
        sources = sources_to_store(recipe, splits)
        assert recipe.features.folder is not None  # `sources_to_store` refuses that.
        encoder = seeded_encoder_of(recipe)
        stores = source_stores(recipe, recipe.features.folder, encoder, sources)
        encoder.to(device)
        for store in stores.values():
            store.fill(encoder, rank, ranks, ranks, end_without_parent)
    except UserError as error:
        user_errors.put(str(error))
        sys.exit(2)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _device_of(device: torch.device, rank: int) -> torch.device:
    """The device of a worker."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", rank % torch.cuda.device_count())
    return device
