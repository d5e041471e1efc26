"""Several processes of one machine that fill a recipe's feature stores together."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from captioner.errors import UserError
from captioner.files import try_lock
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.feature_extraction import (
    SourceStore,
    fill_stores,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
)

Show = Callable[[int, bool], None]
"""Shows how many rows are done, by all processes, and whether only others have work left."""

_REPORT_SECONDS = 0.2
_LOOK_SECONDS = 1.0


def default_processes(device: torch.device) -> int:
    """One for each GPU where `device` leaves open which; otherwise one."""
    if device.type == "cuda" and device.index is None:
        return max(1, torch.cuda.device_count())
    return 1


def fill_with_workers(
    recipe: CaptioningRecipe,
    splits: Sequence[str],
    device: torch.device,
    processes: int,
    stores: Sequence[SourceStore],
    show: Show,
) -> None:
    """Fill the stores of a recipe by so many processes, and wait for them.

    splits: what is stored besides training and validation photos, as for `sources_to_store`.
    device: of the workers; where there are several GPUs and none is named, each has one in turn.
    stores: those that the workers are to fill, made already.

    Raises `UserError` when a worker meets one or ends before its work does. Then, and at
    `KeyboardInterrupt`, the others are stopped first, and all that was done is kept.
    """
    check_locks(stores[0], "give --processes 1")
    workers: list[_Worker] = []
    try:
        with _interrupts_ignored():
            for number in range(processes):
                given = (recipe, tuple(splits), str(_device(device, number)), processes)
                workers.append(_Worker(number, given))
        _watch(workers, stores, show)
    finally:
        _stop(workers)


class _Worker:
    """A worker process, seen from its parent."""

    def __init__(self, number: int, given: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self.number = number
        self.connection, other = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=_work, args=(other, *given), name=f"features-{number}", daemon=True
        )
        self.process.start()
        other.close()  # So that the end of the process is the end of the pipe.
        self.written = 0
        self.waiting = False
        self.finished = False

    def receive(self) -> None:
        """Take what it has sent. Raises `UserError` where it failed or ended too early."""
        try:
            while not self.finished and self.connection.poll():
                kind, *content = self.connection.recv()
                if kind == "rows":
                    self.written, self.waiting = content
                elif kind == "finished":
                    self.written, self.finished = content[0], True
                elif kind == "refused":
                    raise UserError(content[0])
                else:
                    raise RuntimeError(f"a worker process failed:\n{content[0]}")
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise UserError(
                f"process {self.process.pid} of the extraction {how}; what was done is kept: run "
                f"the same command again to go on"
            ) from None


def _watch(workers: Sequence[_Worker], stores: Sequence[SourceStore], show: Show) -> None:
    """Show what is done until every worker has finished."""
    start = sum(store.writer.done for store in stores)
    looked = 0.0
    while working := [worker for worker in workers if not worker.finished]:
        wait([worker.connection for worker in working], timeout=_LOOK_SECONDS)
        for worker in working:
            worker.receive()
        if time.monotonic() - looked >= _LOOK_SECONDS or all(each.finished for each in workers):
            looked = time.monotonic()
            for store in stores:
                store.writer.refresh()
        # The records lag behind what the workers say, and know of other commands' work as well.
        safe = sum(store.writer.done for store in stores)
        written = start + sum(worker.written for worker in workers)
        others = all(worker.waiting for worker in working)
        show(max(safe, written), others)


def _stop(workers: Sequence[_Worker]) -> None:
    """End what is still running; a worker makes safe what it has done before it ends."""
    for worker in workers:
        if not worker.finished:
            worker.process.terminate()
    try:
        for worker in workers:
            worker.process.join()
    except KeyboardInterrupt:  # Asked twice: at once, as safe as a power cut.
        for worker in workers:
            worker.process.kill()
        raise
    finally:
        for worker in workers:
            worker.connection.close()


def _work(
    connection: Connection,
    recipe: CaptioningRecipe,
    splits: Sequence[str],
    device: str,
    processes: int,
) -> None:
    """A worker process: does its share, or ends when its parent says so or is gone."""
    try:
        _let_parent_interrupt()
        try:
            connection.send(_extract(connection, recipe, splits, device, processes))
        except UserError as error:
            connection.send(("refused", str(error)))
        except BrokenPipeError:
            raise KeyboardInterrupt from None
        except Exception:
            connection.send(("failed", traceback.format_exc()))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # There is nothing left to interrupt.
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(128 + signal.SIGINT)


def _extract(
    connection: Connection,
    recipe: CaptioningRecipe,
    splits: Sequence[str],
    device: str,
    processes: int,
) -> tuple[str, int]:
    """Fill the stores with data and an encoder of its own, and tell the parent how it goes."""
    stores: list[SourceStore] = []
    reported = 0.0

    def report(waiting: bool) -> None:
        nonlocal reported
        if connection.poll():  # It sends nothing: it has ended, and nobody waits for the work.
            raise KeyboardInterrupt
        now = time.monotonic()
        if waiting or now - reported >= _REPORT_SECONDS:
            reported = now
            connection.send(("rows", sum(store.writer.written for store in stores), waiting))

    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    encoder = seeded_encoder_of(recipe)
    sources = sources_to_store(recipe, splits)
    assert recipe.features.folder is not None  # `sources_to_store` refuses that.
    stores += source_stores(recipe, recipe.features.folder, encoder, sources).values()
    fill_stores(stores, encoder.to(device), report, processes)
    return "finished", sum(store.writer.written for store in stores)


def _let_parent_interrupt() -> None:
    """In a worker: Ctrl-C reaches every process of a terminal, but only the parent decides."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, interrupt)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started meanwhile ignore Ctrl-C from their first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _device(device: torch.device, number: int) -> torch.device:
    """The device of worker `number`."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", number % torch.cuda.device_count())
    return device


def check_locks(store: SourceStore, advice: str) -> None:
    """Raise `UserError`, with advice, where processes could not keep out of each other's way."""
    try:
        descriptor = os.open(store.folder / "index.json", os.O_RDWR)
    except OSError as error:
        raise UserError(f"cannot write to {store.folder}: {error.strerror or error}") from None
    try:
        if try_lock(descriptor) is None:
            raise UserError(
                f"{store.folder} is on a disk without file locks, so that only one process can "
                f"fill it; {advice}"
            )
    finally:
        os.close(descriptor)
