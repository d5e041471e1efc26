"""What progress shows, with a clock that is set by hand."""

from __future__ import annotations

import io
import time

import pytest

from captioner.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as the one item of a list."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (42.4, "42s"),
        (59.7, "1m00s"),
        (185, "3m05s"),
        (3599.6, "1h00m"),
        (7620, "2h07m"),
        (360_000, "100h00m"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_come_at_intervals_and_at_the_end(clock: list[float]) -> None:
    stream = io.StringIO()
    progress = Progress("features", 2000, "images", interval=10, stream=stream)
    for _ in range(4):
        clock[0] += 6
        progress.advance(300)
    progress.advance(800, "unseen")
    progress.close("done")
    assert stream.getvalue().splitlines() == [
        "features: 600/2,000 images, 50.0 images/s, 28s left",
        "features: 1,200/2,000 images, 50.0 images/s, 16s left",
        "features: 2,000/2,000 images, 83.3 images/s, took 24s, done",
    ]


def test_on_a_terminal_one_line_is_redrawn(clock: list[float]) -> None:
    stream = Terminal()
    progress = Progress("epoch 1", 4, "steps", stream=stream)
    for _ in range(4):
        clock[0] += 0.06
        progress.advance(note="loss 2.0")
    progress.close()
    shown = stream.getvalue()
    assert shown.count("\n") == 1
    assert shown.endswith("took 0s\n")
    drawn = shown.rstrip("\n").split("\r\x1b[2K")[1:]
    assert [line.split()[2] for line in drawn] == ["2/4", "4/4", "4/4"]


def test_what_was_done_before_does_not_count_in_the_rate(clock: list[float]) -> None:
    progress = Progress("features", 100, "images", start=80, stream=io.StringIO())
    clock[0] += 5
    progress.advance(10)
    assert progress.line() == "features: 90/100 images, 2.0 images/s, 5s left"


def test_nothing_done_shows_no_rate(clock: list[float]) -> None:
    progress = Progress("features", 0, stream=io.StringIO())
    assert progress.line() == "features: 0/0 items"
    clock[0] += 5
    assert progress.line("empty") == "features: 0/0 items, empty"
