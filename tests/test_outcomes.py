"""Work in the background, and what progress shows, with a clock that is set by hand."""

import re
import threading
from collections.abc import Iterator

import pytest
import torch
from samples import Output, Patch

from captioner.outcomes import MOST_WORKERS, in_background, share_out
from captioner.progress import counted_by, progress_bar


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_results_come_in_order_and_few_items_are_read_ahead(workers: int) -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            read.append(number)
            yield number

    for number, result in enumerate(in_background(lambda item: -item, items(), workers)):
        assert result == -number
        assert len(read) == min(20, number + workers + 1)
    assert len(read) == 20


def test_workers_compute_at_once_and_share_the_threads_of_the_processor() -> None:
    together = threading.Barrier(2, timeout=60)

    def compute(item: int) -> int:
        together.wait()
        return torch.get_num_threads()

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        assert list(in_background(compute, range(4), 2)) == [2, 2, 2, 2]
        assert torch.get_num_threads() == 4
        later = in_background(lambda _: torch.get_num_threads(), range(1), 1)
        assert list(later) == [4]
    finally:
        torch.set_num_threads(threads)


def test_one_batch_takes_all_cores_and_workers_get_the_same_share() -> None:
    assert share_out(64, 16, 16, MOST_WORKERS) == (0, 16)
    assert share_out(64, 17, 16, MOST_WORKERS) == (MOST_WORKERS, 5)
    assert share_out(1, 17, 16, MOST_WORKERS) == share_out(64, 17, 16, most=1) == (1, 9)
    assert share_out(2, 33, 16, MOST_WORKERS) == (2, 9)


def test_the_time_left_is_not_of_the_first_of_a_batch(monkeypatch: Patch, capsys: Output) -> None:
    clock = [100.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])

    def batches() -> Iterator[int]:
        for _ in range(4):
            clock[0] += 16
            yield from range(20)

    with progress_bar("captioning", 80, "photos") as progress:
        assert len(list(counted_by(progress, batches()))) == 80
    lines = capsys.readouterr().err.splitlines()
    expected = ("20 01:36", "40 00:48", "60 00:21", "80 00:00")
    found = [re.sub("captioning: (.*)/80 photos.*(.{5}) left", r"\1 \2", line) for line in lines]
    assert found == [*expected]


def test_plain_lines_come_at_intervals_and_at_the_end(monkeypatch: Patch, capsys: Output) -> None:
    clock = [100.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with progress_bar("features", 2025, "images") as progress:
        for _ in range(4):
            clock[0] += 6
            progress.update(300)
        progress.set_postfix_str("done", refresh=False)
        progress.update(825)
    with progress_bar("features", 100, "images", start=80) as progress:  # 80 were done before.
        clock[0] += 5
        progress.update(10)
    with progress_bar("features", 10, shown=False) as progress:
        progress.update(10)
    with progress_bar("features", 0):
        pass
    assert capsys.readouterr().err.splitlines() == [
        "features: 600/2025 images, 50.00 images/s, 00:12 taken, 00:28 left",
        "features: 1200/2025 images, 50.00 images/s, 00:24 taken, 00:16 left",
        "features: 2025/2025 images, 84.38 images/s, 00:24 taken, 00:00 left, done",
        "features: 90/100 images,  2.00 images/s, 00:05 taken, 00:05 left",
    ]
