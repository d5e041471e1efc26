"""Batches of captions and of pairs: the same whoever loads them, however they are divided."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_samples import Config, DrawnRows, recipe_of, whole_batches
from samples import write_instances

from captioner.data.example import Example
from captioner.data.instances import CocoInstances
from captioner.runs.batches import CaptionBatches, TranslationBatches
from captioner.runs.features import PixelRows, StoredRows, encoder_of, read_training
from captioner.text.token_batches import PairExample
from captioner.text.vocabulary import Vocabulary
from captioner.translate.model import TranslationLoss
from captioner.translate.recurrent_models import LuongConfig
from captioner.translate.translator import TranslationModelConfig
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Augmentation

WORDS = Vocabulary(["a", "b", "c", "d"])  # 4 to 7


def photos_of(*captions: list[str]) -> list[Example]:
    """A photo for each list of captions."""
    return [Example(row, Path(f"{row}.png"), tuple(texts)) for row, texts in enumerate(captions)]


def batches_of(photos: list[Example], config: Config, rows: Any = None, **changes: Any) -> Any:
    recipe = recipe_of(config, **changes)
    rows = DrawnRows() if rows is None else rows
    return CaptionBatches(photos, range(len(photos)), WORDS, rows, recipe)


def test_photos_are_changed_by_chance_and_whatever_part_of_a_batch_is_read(config: Config) -> None:
    recipe = recipe_of(config)
    examples, *_ = read_training(recipe.data)
    rows = torch.tensor([4, 0, 3])
    unchanged = PixelRows(examples, recipe.preprocessing, encoder_of(recipe))
    augmented = replace(unchanged, augmentation=Augmentation(crop=0.5, mirror=True, colour=0.2))
    plain, _ = unchanged.read(rows)
    assert torch.equal(augmented.read(rows)[0], plain)  # As in validation.

    def drawn(seed: int, first: int = 0) -> torch.Tensor:
        return augmented.read(rows, slice(first, None), torch.Generator().manual_seed(seed))[0]

    assert torch.equal(drawn(0, 1), drawn(0)[1:])
    for photo, other, original in zip(drawn(0), drawn(1), plain, strict=True):
        assert not torch.equal(photo, other)
        assert not torch.equal(photo, original)


def test_a_photo_read_in_the_step_is_read_once_for_all_its_captions(config: Config) -> None:
    recipe = recipe_of(config, encoder={"train": True}, training={"batch_size": 6})
    examples, *_ = read_training(recipe.data)
    rows = PixelRows(examples, recipe.preprocessing, encoder_of(recipe))
    data = CaptionBatches(examples, range(6), WORDS, rows, recipe)
    first, second = whole_batches(data, 0)
    read = [batch.rows[batch.photos.argsort()[::2]] for batch in (first, second)]
    assert sorted(torch.cat(read).tolist()) == list(range(6))
    for batch in (first, second):
        assert len(batch.source) == 3
        paths = [examples[row].path for row in batch.rows.tolist()]
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
    for part_count in (2, 4, 5):
        for batch, parts in zip(
            whole, data.batches(0, 0, range(part_count), part_count), strict=True
        ):
            sizes = [round(part.share * len(batch.inputs)) for part in parts]
            assert sum(sizes) == len(batch.inputs)
            assert max(sizes) - min(sizes) <= 1
            assert [bool(part.mask.any()) for part in parts] == [size > 0 for size in sizes]
            rows = [row for part in parts if part.share for row in part.source.flatten()]
            assert sorted(map(int, rows)) == sorted(map(int, batch.source.flatten()))
            assert len({part.seed for part in parts}) == len(parts)


def test_batches_of_a_resumed_epoch_are_those_of_a_whole_one(config: Config) -> None:
    data = batches_of(photos_of(*[["a b", "c", "b"]] * 5), config)
    whole = whole_batches(data, 3)
    assert len(whole) == len(data) == 4
    for resumed, original in zip(whole_batches(data, 3, 2), whole[2:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(resumed[:4], original[:4], strict=True))
        assert (resumed.seed, resumed.progress) == (original.seed, original.progress)
    seeds = [batch.seed for epoch in range(3) for batch in whole_batches(data, epoch)]
    assert len(set(seeds)) == len(seeds)


def test_long_captions_are_cut_and_a_self_critical_epoch_goes_over_every_photo_once(
    config: Config,
) -> None:
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


def test_a_map_should_lie_on_the_boxes_of_what_the_word_names(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a photo of 80x40 pixels with a dog in its right half; each box is laid on the map once."""
    sizes = {"size": (80, 40), "box": (40, 0, 40, 40), "file_name": "a.jpg"}
    file = write_instances(tmp_path / "instances.json", {7: ["dog"]}, ["dog", "cat"], **sizes)
    instances, asked = CocoInstances([file]), []
    target = instances.target
    monkeypatch.setattr(instances, "target", lambda *of: (asked.append(of), target(*of))[1])
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
    assert sorted(asked) == [("photos/a.jpg", "cat"), ("photos/a.jpg", "dog")]
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
    model = TranslationLoss(TranslationModelConfig(luong=luong).make(9, 9))
    data = TranslationBatches(PAIRS, tokens=40)
    model.loss(whole_batches(data, 0)[0])["loss"].backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    for part in next(data.batches(0, 0, range(part_count), part_count)):
        (model.loss(part)["loss"] * part.share).backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)
