"""Batches of captions and of pairs: the same by any process, in any number of parts."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_samples import Config, DrawnRows, recipe_of, whole_batches
from samples import write_instances

from captioner.backends.torch_translations import make_model
from captioner.data.example import Example
from captioner.data.instances import CocoInstances
from captioner.data.parallel import SentencePair
from captioner.models.translation_config import LuongConfig, TranslationModelConfig
from captioner.models.translation_model import TranslationLoss
from captioner.runs.batches import (
    CaptionBatches,
    TranslationBatches,
    batches_by_photo,
    batches_by_tokens,
    encode_pairs,
)
from captioner.runs.features import encoder_of
from captioner.runs.photos import PixelRows, StoredRows, read_training
from captioner.text import Vocabulary, WordVocabulary
from captioner.text.token_batches import PairExample, collate_captions, collate_pairs
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Augmentation

WORDS = Vocabulary(["a", "b", "c", "d"])  # 4 to 7


def photos_of(*captions: list[str]) -> list[Example]:
    return [Example(row, Path(f"{row}.png"), tuple(texts)) for row, texts in enumerate(captions)]


def batches_of(photos: list[Example], config: Config, rows: Any = None, **changes: Any) -> Any:
    recipe = recipe_of(config, **changes)
    rows = DrawnRows() if rows is None else rows
    return CaptionBatches(photos, range(len(photos)), WORDS, rows, recipe)


def test_photos_are_changed_by_chance_in_every_part_of_a_batch(config: Config) -> None:
    recipe = recipe_of(config)
    examples, *_ = read_training(recipe.data)
    rows = torch.tensor([4, 0, 3])
    unchanged = PixelRows(examples, recipe.preprocessing, encoder_of(recipe.encoder))
    augmented = replace(unchanged, augmentation=Augmentation(crop=0.5, mirror=True, colour=0.2))
    plain, _ = unchanged.read(rows)
    assert torch.equal(augmented.read(rows)[0], plain)  # As in validation.

    def drawn(seed: int, first: int = 0) -> torch.Tensor:
        return augmented.read(rows, slice(first, None), torch.Generator().manual_seed(seed))[0]

    assert torch.equal(drawn(0, 1), drawn(0)[1:])
    for first, second in ((drawn(0), drawn(1)), (drawn(0), plain)):
        assert (first != second).flatten(1).any(dim=1).all()


def test_a_photo_read_in_the_step_is_read_once_for_all_its_captions(config: Config) -> None:
    recipe = recipe_of(config, encoder={"train": True}, training={"batch_size": 6})
    examples, *_ = read_training(recipe.data)
    rows = PixelRows(examples, recipe.preprocessing, encoder_of(recipe.encoder))
    data = CaptionBatches(examples, range(6), WORDS, rows, recipe)
    first, second = whole_batches(data, 0)
    read = [batch.rows[batch.photos.argsort()[::2]] for batch in (first, second)]
    assert sorted(torch.cat(read).tolist()) == list(range(6))
    for batch in (first, second):
        assert len(batch.source) == 3
        paths = [examples[row].source for row in batch.rows.tolist()]
        each = torch.stack([recipe.preprocessing(load_image(path)) for path in paths])
        assert torch.equal(batch.source[batch.photos], each)  # (6, 3, 64, 64)
    # Parts have whole photos, so none is read by two of them, however many there are.
    for part_count in (2, 3, 4):
        parts = next(data.batches(0, 0, range(part_count), part_count))
        assert sum(part.share for part in parts) == pytest.approx(1)
        own = [part for part in parts if part.share > 0]
        assert sum(len(part.source) for part in own) == 3
        found = [row for part in own for row in part.rows.tolist()]
        assert sorted(found) == sorted(first.rows.tolist())


def test_every_example_is_in_one_part(config: Config, tmp_path: Path) -> None:
    names = [str(row) for row in range(10)]
    record = StoreRecord(encoder={}, preprocessing={}, images=names, shape=(1, 1), mirrored=True)
    with StoreWriter(tmp_path / "store", record) as writer:
        writer.write(range(20), torch.arange(20.0).view(20, 1, 1))  # The number of each row.
    photos = photos_of(*([" ".join("a" * (1 + row % 4))] for row in range(10)))
    data = batches_of(photos, config, StoredRows(FeatureStore(tmp_path / "store")))
    whole = whole_batches(data, 0)
    for count in (2, 4, 5):
        for batch, parts in zip(whole, data.batches(0, 0, range(count), count), strict=True):
            sizes = [round(part.share * len(batch.inputs)) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            assert [bool(part.mask.any()) for part in parts] == [size > 0 for size in sizes]
            rows = [row for part in parts if part.share for row in part.source.flatten()]
            assert sorted(map(int, rows)) == sorted(map(int, batch.source.flatten()))
            assert len({part.seed for part in parts}) == len(parts)


def test_batches_of_a_resumed_epoch_are_those_of_a_whole_one(config: Config) -> None:
    data = batches_of(photos_of(*[["a b", "c", "b"]] * 5), config)
    whole = whole_batches(data, 3)
    assert len(whole) == len(data) == 4
    torch.testing.assert_close(whole_batches(data, 3, 2), whole[2:], rtol=0, atol=0)
    seeds = [batch.seed for epoch in range(3) for batch in whole_batches(data, epoch)]
    assert len(set(seeds)) == len(seeds)


def test_long_captions_are_cut_and_a_self_critical_epoch_has_every_photo(config: Config) -> None:
    photos = photos_of(["a b c", "b c", "c d"], ["d"], ["a", "b"])
    data = {**config["data"], "maximum_length": 2}
    changes = {"objective": {"self_critical": {}}, "training": {"batch_size": 3}, "data": data}
    batches = batches_of(photos, config, **changes)
    assert len(batches) == 1
    seen = {}
    for epoch in range(6):
        (batch,) = whole_batches(batches, epoch)
        for row, targets in zip(batch.rows.tolist(), batch.targets.tolist(), strict=True):
            seen.setdefault(row, []).append(WORDS.decode(targets))
    assert seen[0] == [["a", "b"], ["b", "c"], ["c", "d"]] * 2
    assert seen[1] == [["d"]] * 6
    assert seen[2] == [["a"], ["b"]] * 3


def test_a_map_should_lie_on_the_boxes_of_what_a_word_names(config: Config, tmp_path: Path) -> None:
    """Of a photo of 80x40 pixels with a dog in its right half."""
    sizes = {"size": (80, 40), "box": (40, 0, 40, 40), "file_name": "a.jpg"}
    file = write_instances(tmp_path / "instances.json", {7: ["dog"]}, ["dog", "cat"], **sizes)
    instances = CocoInstances([file])
    words = Vocabulary(["a", "dog", "puppy", "cat"])
    photos = [
        Example(f"photos/{name}.jpg", Path(f"{name}.jpg"), (caption,))
        for name, caption in (("a", "a dog puppy cat"), ("b", "dog"))
    ]
    squashed = recipe_of(config, preprocessing={"size": 32, "resize": "squash"})
    data = CaptionBatches(photos, [0, 1], words, DrawnRows(), squashed, instances, (2, 2))
    (batch,) = whole_batches(data, 0)
    places = dict(zip(batch.rows.tolist(), batch.places, strict=True))
    assert batch.places.shape == (2, 5, 4)
    right, nothing = [0.0, 1.0, 0.0, 1.0], [0.0] * 4
    assert places[0].tolist() == [nothing, right, right, nothing, nothing]
    assert not places[1].any()
    assert [torch.equal(each.places, batch.places) for each in whole_batches(data, 0)] == [True]
    # The middle square, a half of the photo's width, is seen: half of it is in the box.
    crop = {"size": 32, "resize": "crop", "resize_shorter": 32}
    cropped = replace(data, recipe=recipe_of(config, preprocessing=crop), map_shape=(1, 4))
    (seen,) = whole_batches(cropped, 0)
    row = seen.rows.tolist().index(0)
    assert seen.places[row, 1].tolist() == pytest.approx([0, 0, 1, 1])


PAIRS = [PairExample([4 + i % 5] * (1 + i % 7), [4 + i % 3] * (1 + i % 4)) for i in range(60)]


@pytest.mark.parametrize("part_count", [3, 4, 40])
def test_the_gradient_is_that_of_the_whole_batch(part_count: int) -> None:
    torch.manual_seed(0)
    sizes = {"embedding_size": 4, "hidden_size": 6, "layers": 1}
    luong = LuongConfig(cell="gru", score="dot", dropout=0.0, **sizes)  # type: ignore[arg-type]
    model = TranslationLoss(make_model(TranslationModelConfig(luong=luong), 9, 9))
    data = TranslationBatches(PAIRS, tokens=40)
    model.loss(whole_batches(data, 0)[0])["loss"].backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for part in next(data.batches(0, 0, range(part_count), part_count)):
        (model.loss(part)["loss"] * part.share).backward()
    found = [parameter.grad for parameter in model.parameters()]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    st.lists(st.integers(0, 30), max_size=700), st.integers(1, 9), st.integers(0, 9), st.booleans()
)
def test_each_example_in_one_batch(rows: list[int], size: int, seed: int, is_sorted: bool) -> None:
    lengths = [row * 7 % 11 for row in rows] if is_sorted else None
    batches = batches_by_photo(rows, size, seeded(seed), lengths)
    assert batches_by_photo(rows, size, seeded(seed), lengths) == batches
    assert sorted(index for batch in batches for index in batch) == list(range(len(rows)))
    assert len(batches) == -(-len(rows) // size)
    assert sum(len(batch) < size for batch in batches) <= 1
    if not is_sorted:
        # Captions of a photo are side by side; in two batches only if the first one is full.
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
    assert [(*map(list, each),) for each in examples] == [([4, 5], [4]), ([5], [5, 4])]
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
