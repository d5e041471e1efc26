"""The next batches made ready in the background while the present one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(iterable: Iterable[Item], depth: int = 2) -> Generator[Item, None, None]:
    """The items of `iterable`, in its order, up to `depth` of them made ready ahead by a thread.

    The thread starts when the first item is asked for and stops, at the latest when the item that
    it is making is made, when the result is closed or let go: by `break`, by an exception in the
    loop, by Ctrl-C. A generator given as `iterable` is closed then, by the thread.

    An exception in `iterable` is raised where its item would have come, with the traceback of the
    place where it happened. Up to `depth` + 2 items are in memory: one in use, one in the making.

    What torch keeps for each thread (`no_grad`, `autocast`) must be set inside `iterable`, and
    `iterable` must draw from generators of its own: both threads would share the global one.

    Raises `ValueError` for a depth below 1.
    """
    if depth < 1:
        raise ValueError(f"prefetch depth {depth} is not at least 1")
    return _items(iterable, depth)


class _End:
    """What the thread hands on last: how it ended."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _items(iterable: Iterable[Item], depth: int) -> Generator[Item, None, None]:
    ready: queue.SimpleQueue[Item | _End] = queue.SimpleQueue()
    room = threading.Semaphore(depth)
    stop = threading.Event()
    thread = threading.Thread(
        target=_produce, args=(iterable, ready, room, stop), name="prefetch", daemon=True
    )
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            room.release()
            yield item
            del item  # Or it would stay in memory while the next one is waited for.
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        room.release()
        thread.join()


def _produce(
    iterable: Iterable[Item],
    ready: queue.SimpleQueue[Item | _End],
    room: threading.Semaphore,
    stop: threading.Event,
) -> None:
    """Put the items into `ready` while there is room, and then how it ended."""
    end = _End()
    try:
        items = iter(iterable)
        try:
            while True:
                room.acquire()
                if stop.is_set():
                    break
                try:
                    item = next(items)
                except StopIteration:
                    break
                ready.put(item)
                del item
        finally:
            close = getattr(items, "close", None)  # Of a generator.
            if close is not None:
                close()
    except BaseException as error:
        end.error = error
    ready.put(end)
