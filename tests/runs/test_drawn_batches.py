"""Batches: every example once, similar lengths together; loaded ahead in the same order."""

import itertools
import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioner.data.parallel import SentencePair
from captioner.errors import UserError
from captioner.runs.batches import batches_by_photo, batches_by_tokens, encode_pairs
from captioner.runs.features import Loader
from captioner.text.token_batches import PairExample, collate_captions, collate_pairs
from captioner.text.vocabulary import WordVocabulary


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    st.lists(st.integers(0, 30), max_size=700), st.integers(1, 9), st.integers(0, 9), st.booleans()
)
def test_every_example_is_in_one_batch(
    rows: list[int], size: int, seed: int, is_sorted: bool
) -> None:
    lengths = [row * 7 % 11 for row in rows] if is_sorted else None
    batches = batches_by_photo(rows, size, seeded(seed), lengths)
    assert batches_by_photo(rows, size, seeded(seed), lengths) == batches
    assert sorted(index for batch in batches for index in batch) == list(range(len(rows)))
    assert len(batches) == -(-len(rows) // size)
    assert sum(len(batch) < size for batch in batches) <= 1
    if not is_sorted:
        # Captions of a photo are side by side; in two batches only where one is full amid them.
        runs = [len(list(itertools.groupby(rows[index] for index in batch))) for batch in batches]
        assert runs == [len({rows[index] for index in batch}) for batch in batches]
        if max(map(rows.count, rows), default=0) <= size:
            assert sum(runs) < len(set(rows)) + max(1, len(batches))


def test_batches_have_similar_lengths_in_random_order() -> None:
    lengths = torch.randint(5, 25, (5000,), generator=seeded(0)).tolist()
    rows, generator = [number // 5 for number in range(5000)], seeded(1)
    batches = batches_by_photo(rows, 20, generator, lengths)
    spans = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in batches]
    assert sum(spans) / len(spans) < 1  # of about 18 without buckets
    shortest = [min(lengths[index] for index in batch) for batch in batches]
    rises = sum(after > before for before, after in itertools.pairwise(shortest))
    assert 0.3 < rises / len(shortest) < 0.7
    assert batches_by_photo(rows, 20, generator, lengths) != batches
    # Captions of a photo are within a hundred batches, so that a disk is read once an epoch, but in
    # different ones.
    places: dict[int, set[int]] = {}
    for number, batch in enumerate(batches):
        for index in batch:
            places.setdefault(rows[index], set()).add(number // 100)
    assert sum(len(each) > 1 for each in places.values()) <= len(batches) // 100
    assert sum(len({rows[index] for index in batch}) for batch in batches) > 0.95 * len(rows)


def test_collate_adds_start_and_end_and_pads() -> None:
    inputs, targets, mask = collate_captions([[5, 6, 4], [], [9]])
    assert inputs.tolist() == [[1, 5, 6, 4], [1, 2, 0, 0], [1, 9, 2, 0]]
    assert targets.tolist() == [[5, 6, 4, 2], [2, 0, 0, 0], [9, 2, 0, 0]]
    assert mask.int().tolist() == [[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]
    assert {tensor.dtype for tensor in (inputs, targets)} == {torch.long}
    batch = collate_pairs([PairExample([7, 8], [4, 5, 6]), PairExample([], [9])])
    assert batch.source.tolist() == [[7, 8, 2], [2, 0, 0]]
    assert batch.source_mask.int().tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.inputs.tolist() == [[1, 4, 5, 6], [1, 9, 2, 0]]
    assert batch.targets.tolist() == [[4, 5, 6, 2], [9, 2, 0, 0]]
    assert batch.mask.int().tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]


def test_pairs_are_encoded_and_long_ones_cut_and_counted() -> None:
    pairs = [SentencePair("a b c", "x", 1), SentencePair("b", "y x", 2)]
    source = WordVocabulary.learn(["a b c"], 1, "keep")
    target = WordVocabulary.learn(["x y"], 1, "keep")
    examples, cut = encode_pairs(pairs, source, target, 2)
    assert examples == [PairExample([4, 5], [4]), PairExample([5], [5, 4])]
    assert cut == [1]
    assert encode_pairs(pairs, source, target, 9)[1] == []


def test_batches_by_tokens() -> None:
    lengths = torch.randint(1, 40, (3000,), generator=seeded(0)).tolist()
    generator = seeded(1)
    epochs = [batches_by_tokens(lengths, 500, generator) for _ in range(3)]
    assert len({len(batches) for batches in epochs}) == 1
    assert epochs[0] != epochs[1]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(3000))
        filled = [len(batch) * max(lengths[index] for index in batch) for batch in batches]
        assert max(filled) <= 500
        assert sum(filled) < 1.03 * sum(lengths)  # Little padding.
        assert filled != sorted(filled)
    longer_than_a_batch = batches_by_tokens([3, 50, 3, 3], 6, seeded(0))
    assert sorted(map(len, longer_than_a_batch)) == [1, 1, 2]
    assert batches_by_tokens([], 5, seeded(0)) == []


# Loading ahead: no process is left behind.


def load(number: int) -> tuple[int, torch.Tensor]:
    if number == 5:
        raise UserError("photo 5 is gone")
    return os.getpid(), torch.full((2,), number)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_come_in_the_order_of_the_keys_from_the_same_processes(workers: int) -> None:
    state, others = torch.get_rng_state(), multiprocessing.active_children()
    loader, keys = Loader(load, workers), [3, 0, 2, 4, 0]
    items = list(loader(keys))
    assert [int(item[1][0]) for item in items] == keys
    processes = {process for process, _ in items}
    assert len(processes - {os.getpid()}) == workers
    assert [int(item[1][0]) for item in loader(iter([1, 2]))] == [1, 2]
    assert {process for process, _ in loader(keys)} == processes  # Also of the next epoch.
    assert torch.equal(torch.get_rng_state(), state)  # Or dropout would depend on loading.
    assert list(loader([])) == []
    del loader
    assert set(multiprocessing.active_children()) <= set(others)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_raised_in_the_place_of_its_item(workers: int) -> None:
    loader = Loader(load, workers)
    items = loader([1, 2, 5, 4])
    assert [int(next(items)[1][0]) for _ in range(2)] == [1, 2]
    with pytest.raises(UserError, match=r"^photo 5 is gone$"):
        next(items)
    assert [int(item[1][0]) for item in loader([4, 3])] == [4, 3]


def test_workers_load_an_item_ahead_each_and_go_on_after_an_epoch_is_left(tmp_path: Path) -> None:
    def note(number: int) -> int:
        (tmp_path / str(number)).touch()
        return number

    loader = Loader(note, 2)
    items = loader(range(100))
    assert [next(items) for _ in range(10)] == list(range(10))
    assert len(list(tmp_path.iterdir())) <= 12
    items.close()
    assert list(loader([200, 201, 202])) == [200, 201, 202]
