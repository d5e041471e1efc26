import threading
from collections.abc import Iterator

import pytest
import torch

from captioner.outcomes import in_background


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
