from __future__ import annotations

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.examples import CaptionExample
from captioner.data.length_buckets import batches_by_photo, collate, length_bucketed_batches


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.lists(st.integers(0, 20), max_size=700), st.integers(1, 9), st.integers(0, 2**32))
def test_every_example_is_in_exactly_one_batch(lengths: list[int], size: int, seed: int) -> None:
    batches = length_bucketed_batches(lengths, size, seeded(seed))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size)
    assert sum(len(batch) < size for batch in batches) <= 1
    assert all(batches)


def test_the_generator_alone_decides() -> None:
    lengths = [index % 13 for index in range(1000)]
    generator = seeded(3)
    first = length_bucketed_batches(lengths, 8, generator)
    assert length_bucketed_batches(lengths, 8, seeded(3)) == first
    assert length_bucketed_batches(lengths, 8, generator) != first
    assert length_bucketed_batches(lengths, 8, seeded(4)) != first


def test_lengths_within_a_batch_are_nearly_equal_and_batches_come_in_no_order() -> None:
    lengths = torch.randint(5, 25, (5000,), generator=seeded(0)).tolist()
    batches = length_bucketed_batches(lengths, 20, seeded(1))
    spans = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    assert sum(spans) / len(spans) < 1  # of about 18 without buckets
    shortest = [min(lengths[index] for index in batch) for batch in batches]
    assert shortest != sorted(shortest)
    rises = sum(after > before for before, after in itertools.pairwise(shortest))
    assert 0.3 < rises / len(shortest) < 0.7


@given(st.lists(st.integers(0, 30), max_size=200), st.integers(1, 9), st.integers(0, 2**32))
def test_captions_of_a_photo_are_together(rows: list[int], size: int, seed: int) -> None:
    batches = batches_by_photo(rows, size, seeded(seed))
    assert len(batches) == -(-len(rows) // size)
    assert sum(len(batch) < size for batch in batches) <= 1
    assert sorted(index for batch in batches for index in batch) == list(range(len(rows)))
    # Side by side in a batch; and in two batches only where one is full amid them.
    runs = [len(list(itertools.groupby(rows[index] for index in batch))) for batch in batches]
    assert runs == [len({rows[index] for index in batch}) for batch in batches]
    most = max((rows.count(row) for row in set(rows)), default=0)
    assert sum(runs) <= len(set(rows)) + (max(0, len(batches) - 1) if most <= size else sum(runs))
    assert batches_by_photo(rows, size, seeded(seed)) == batches


def test_photos_come_in_another_order_every_time() -> None:
    generator = seeded(0)
    rows = [number // 5 for number in range(500)]
    assert batches_by_photo(rows, 20, generator) != batches_by_photo(rows, 20, generator)


def test_collate_adds_start_and_end_and_pads() -> None:
    batch = collate([CaptionExample(7, [5, 6, 4]), CaptionExample(2, []), CaptionExample(7, [9])])
    assert batch.rows.tolist() == [7, 2, 7]
    assert batch.inputs.tolist() == [[1, 5, 6, 4], [1, 0, 0, 0], [1, 9, 0, 0]]
    assert batch.targets.tolist() == [[5, 6, 4, 2], [2, 0, 0, 0], [9, 2, 0, 0]]
    assert batch.mask.tolist() == [
        [True, True, True, True],
        [True, False, False, False],
        [True, True, False, False],
    ]
    tensors = (batch.rows, batch.inputs, batch.targets)
    assert {tensor.dtype for tensor in tensors} == {torch.long}
