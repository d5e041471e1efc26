"""Prefetching: the same items in order, errors where they belong, no thread left behind."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator

import pytest

from captioner.data.prefetch import prefetch


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


class Source:
    """Counts upwards; remembers what it has given and whether it was closed, and by whom."""

    def __init__(self, count: int, fail_at: int | None = None) -> None:
        self.count, self.fail_at = count, fail_at
        self.given = 0
        self.closed_by: threading.Thread | None = None
        self.reached = threading.Condition()

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                if number == self.fail_at:
                    raise OSError("the disk is gone")
                with self.reached:
                    self.given += 1
                    self.reached.notify_all()
                yield number
        finally:
            self.closed_by = threading.current_thread()

    def wait(self, given: int) -> None:
        with self.reached:
            assert self.reached.wait_for(lambda: self.given >= given, timeout=30)


@pytest.mark.parametrize("depth", [1, 2, 100])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_items_come_in_order(count: int, depth: int) -> None:
    assert list(prefetch(range(count), depth)) == list(range(count))
    assert threads() == []


def test_items_are_made_ahead_and_no_more_than_the_depth() -> None:
    source = Source(100)
    items = prefetch(source, 3)
    assert source.given == 0
    assert next(items) == 0
    source.wait(4)  # While the first is in use three more are made ...
    assert next(items) == 1
    source.wait(5)
    # ... and never more: the thread waits for room before it makes one.
    for number in range(2, 100):
        assert source.given <= number + 3
        assert next(items) == number
    assert list(items) == []


def test_an_error_comes_in_its_place_with_its_traceback() -> None:
    items = prefetch(Source(5, fail_at=2), 4)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone") as caught:
        next(items)
    lines = "".join(traceback.format_exception(caught.value))
    assert 'raise OSError("the disk is gone")' in lines
    assert threads() == []


def test_an_error_of_the_iterable_itself_is_passed_on() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(prefetch(5))  # type: ignore[arg-type]


def test_leaving_a_loop_stops_the_thread_and_closes_the_source() -> None:
    source = Source(1000)
    for number in prefetch(source, 2):
        if number == 3:
            break
    gc.collect()
    assert threads() == []
    assert source.given <= 3 + 1 + 2
    assert source.closed_by is not None
    assert source.closed_by.name == "prefetch"


def test_an_error_in_the_loop_stops_the_thread() -> None:
    source = Source(1000)

    def work() -> None:
        for number in prefetch(source, 2):
            if number == 3:
                raise KeyError(number)

    with pytest.raises(KeyError):
        work()
    gc.collect()
    assert threads() == []
    assert source.given <= 6


def test_closing_stops_a_thread_that_waits_for_room() -> None:
    source = Source(1000)
    items = prefetch(source, 1)
    next(items)
    source.wait(2)  # It has nothing left to do but to wait.
    items.close()
    assert threads() == []


def test_what_was_never_asked_for_starts_no_thread() -> None:
    source = Source(5)
    prefetch(source).close()
    assert source.given == 0
    assert threads() == []


def test_a_depth_below_one_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="depth 0 is not at least 1"):
        prefetch([1], 0)


INTERRUPTED = """
import itertools, os, signal, threading, time
from captioner.data.prefetch import prefetch

def slow():
    for number in itertools.count():
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)  # while the other thread waits for an item
            time.sleep(0.05)
        yield number

try:
    for item in prefetch(slow(), 1):
        pass
except KeyboardInterrupt:
    print([thread.name for thread in threading.enumerate()])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot send itself SIGINT there")
def test_ctrl_c_stops_the_thread() -> None:
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == "['MainThread']", run.stderr
