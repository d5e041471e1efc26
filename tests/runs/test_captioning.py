"""Whole runs, small: every road from data to a model folder."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import coco_samples
import pytest
import torch
from run_samples import (
    Config,
    DrawnRows,
    assert_same_tensors,
    log_of,
    recipe_of,
    save_encoder,
    whole_batches,
)
from safetensors.torch import load_file
from samples import Output, Patch, save_photo

import captioner
from captioner.data.batches import encode_captions
from captioner.data.readers import read_examples
from captioner.errors import UserError
from captioner.evaluation.scorer import write_results
from captioner.files import folder_lock
from captioner.runs import caption_task
from captioner.runs.batches import CaptionBatches
from captioner.runs.caption_data import DataConfig, read_training
from captioner.runs.caption_task import RESULTS, scores_of
from captioner.runs.features import PixelRows, encoder_of
from captioner.runs.run import train_run
from captioner.text.vocabulary import Vocabulary
from captioner.vision.feature_store import FeatureStore
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Augmentation


def test_a_run_on_stored_features_gives_a_model_that_captions(
    config: Config, tmp_path: Path
) -> None:
    folder = train_run(recipe_of(config), tmp_path / "run")
    model = captioner.load(folder)
    caption = model.caption([tmp_path / "photos" / "7.png"])[0]
    assert caption.words
    assert caption.attention.shape == (len(caption.words), 4, 4)
    log = log_of(tmp_path / "run")
    assert [record["epoch"] for record in log] == [1, 2]
    assert {"train_loss", "CIDEr-D", "BLEU-4", "brevity_penalty"} <= log[0].keys()
    assert (tmp_path / "run" / "config.json").exists()


def test_a_run_without_a_store_is_the_one_with_it(config: Config, tmp_path: Path) -> None:
    """But for the store's rounding to float16, where all captions are in one batch."""
    alike = {
        "training": {"epochs": 2, "batch_size": 12, "learning_rate": 0.01},
        "decoder": {"dropout": 0.0},
    }
    without = recipe_of(config, features={"store": False}, **alike)
    folder = train_run(without, tmp_path / "without")
    train_run(recipe_of(config, **alike), tmp_path / "with")
    assert not (tmp_path / "without" / "features").exists()
    for ours, theirs in zip(log_of(tmp_path / "without"), log_of(tmp_path / "with"), strict=True):
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-3)
    # The encoder is as it was, and not part of what is trained.
    kept = load_file(tmp_path / "with" / "model" / "model.safetensors")
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.startswith("encoder."):
            assert torch.equal(tensor, kept[name]), name
    last = load_file(tmp_path / "without" / "last.safetensors")
    assert not any(name.startswith("model.encoder.") for name in last)


@pytest.mark.parametrize("store", [True, False])
def test_steps_loaded_by_processes_are_those_loaded_in_the_run(
    config: Config, tmp_path: Path, monkeypatch: Patch, store: bool
) -> None:
    """As for a GPU; with augmentation where photos are read in the step."""
    changes: dict[str, Any] = {"features": {"store": store, "mirror": store}}
    if not store:
        changes["augmentation"] = {"crop": 0.5, "mirror": True}
    recipe = recipe_of(config, **changes)
    train_run(recipe, tmp_path / "alone")
    monkeypatch.setattr(caption_task, "loading_workers", lambda device, ranks: 2)
    train_run(recipe, tmp_path / "loaded")
    assert_same_tensors(tmp_path / "loaded", tmp_path / "alone")
    results = [(tmp_path / name / "results.json").read_text() for name in ("alone", "loaded")]
    assert results[0] == results[1]


def test_photos_are_encoded_without_a_gradient(config: Config) -> None:
    recipe = recipe_of(config)
    examples, *_ = read_training(recipe.data)
    rows = torch.tensor([4, 0, 3, 0])
    photos = PixelRows(examples, recipe.preprocessing, encoder_of(recipe))
    pixels = photos.read(rows)
    assert pixels.is_contiguous(memory_format=torch.channels_last)
    encoded = photos.encode(pixels[1:3])
    assert encoded.shape == (2, 16, 512)
    assert not encoded.requires_grad


def test_photos_are_changed_by_chance_and_whatever_part_of_a_batch_is_read(config: Config) -> None:
    recipe = recipe_of(config)
    examples, *_ = read_training(recipe.data)
    rows = torch.tensor([4, 0, 3])
    augmentation = Augmentation(crop=0.5, mirror=True, colour=0.2)
    read = PixelRows(examples, recipe.preprocessing, augmentation=augmentation).read
    plain = PixelRows(examples, recipe.preprocessing).read(rows)
    assert torch.equal(read(rows), plain)  # As in validation.

    def drawn(seed: int, first: int = 0) -> torch.Tensor:
        return read(rows[first:], torch.Generator().manual_seed(seed))

    assert torch.equal(drawn(0, 1), drawn(0)[1:])
    for photo, other, unchanged in zip(drawn(0), drawn(1), plain, strict=True):
        assert not torch.equal(photo, other)
        assert not torch.equal(photo, unchanged)


def test_a_photo_read_in_the_step_is_read_once_for_all_its_captions(config: Config) -> None:
    recipe = recipe_of(config, encoder={"train": True}, training={"batch_size": 6})
    examples, *_ = read_training(recipe.data)
    words = Vocabulary.build(chain(*(each.words for each in examples)), 1)
    captions, _ = encode_captions((each.words for each in examples), words, 50)
    batches = CaptionBatches(captions, PixelRows(examples, recipe.preprocessing), recipe)
    (first, second), (again, _) = (whole_batches(batches, epoch) for epoch in (0, 0))
    assert torch.equal(first.source, again.source)
    read = [batch.rows[batch.photos.argsort()[::2]] for batch in (first, second)]
    assert sorted(torch.cat(read).tolist()) == list(range(6))
    for batch in (first, second):
        assert len(batch.source) == 3
        paths = [examples[row].path for row in batch.rows.tolist()]
        photos = [recipe.preprocessing(load_image(path)) for path in paths]
        each = torch.stack(photos)  # (6, 3, 64, 64)
        assert torch.equal(batch.source[batch.photos], each)
    # Parts have whole photos, so none is read by two of them, however many there are.
    for processes in (2, 3, 4):
        parts = [
            next(iter(batches.batches(0, 0, rank, processes, 1))).micro_batches[0]
            for rank in range(processes)
        ]
        assert sum(part.examples for part in parts) == 6
        own = [part.batch for part in parts if part.examples]
        assert sum(len(share.source) for share in own) == 3
        assert torch.equal(torch.cat([share.inputs[:, :4] for share in own]), first.inputs[:, :4])


def test_annotation_vectors_are_standardised_by_those_of_training_photos(
    config: Config, tmp_path: Path
) -> None:
    decoder = {"standardise": True}
    whole = tmp_path / "whole"
    folder = train_run(recipe_of(config, decoder=decoder), whole)
    found = captioner.load(folder).decoder.standardisation
    store = FeatureStore(next(whole.glob("features/vgg11_bn-64-*/train")))
    vectors = store.read(torch.arange(6)).flatten(end_dim=1)
    deviation, mean = torch.std_mean(vectors, dim=0, correction=0)
    torch.testing.assert_close(found.mean, mean, atol=1e-3, rtol=1e-3)
    usual = deviation > 0.1 * deviation.median()
    assert usual.any()
    torch.testing.assert_close(found.deviation[usual], deviation[usual], atol=1e-3, rtol=1e-3)

    # One that goes on with it keeps it, though the vectors of its photos are others.
    table = Path(config["data"]["annotations"])
    table.write_text("\n".join(table.read_text().splitlines()[4:]), encoding="utf-8")
    options = {"decoder": decoder, "start_from": str(folder), "encoder": {"weights": str(folder)}}
    after = train_run(recipe_of(config, **options), tmp_path / "after")
    kept = captioner.load(after).decoder.standardisation
    assert torch.equal(kept.mean, found.mean)


def test_encoder_weights_are_pinned_by_the_digest_that_training_prints(
    config: Config, tmp_path: Path, capsys: Output
) -> None:
    pinned = {"weights": save_encoder(tmp_path)}
    train_run(recipe_of(config, encoder=pinned), tmp_path / "first")
    prefix = "encoder: vgg11_bn, weights of digest "
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith(prefix))
    pinned["digest"] = line.removeprefix(prefix)
    assert line in (tmp_path / "first" / "model" / "README.md").read_text().replace("\n  ", " ")
    train_run(recipe_of(config, encoder=pinned), tmp_path / "second")
    torch.manual_seed(1)
    save_encoder(tmp_path)
    with pytest.raises(UserError, match=f"have the digest .*, and encoder.digest is {line[-64:]}"):
        train_run(recipe_of(config, encoder=pinned), tmp_path / "third")


def test_a_photo_in_both_splits_is_refused(tmp_path: Path) -> None:
    save_photo(tmp_path / "a.png")
    files = tmp_path / "train.csv", tmp_path / "val.csv"
    for file in files:
        file.write_text("image,caption\na.png,one\n")
    fields = {"format": "table", "validation": None}
    fields |= dict(zip(("annotations", "validation_annotations"), files, strict=True))
    with pytest.raises(UserError, match=r"a\.png"):
        read_training(DataConfig(**fields, train=None))
    with pytest.raises(UserError, match=r"one has no splits: set data\.train"):
        read_training(DataConfig(**fields, train="train"))


def test_an_unreadable_photo_is_refused_by_name_or_left_out(
    config: Config, tmp_path: Path, capsys: Output
) -> None:
    photos = [tmp_path / "photos" / name for name in ("2.png", "4.png")]
    good = [photo.read_bytes() for photo in photos]
    photos[0].write_bytes(good[0][:40])
    photos[1].write_bytes(b"")
    with pytest.raises(UserError, match=r"2\.png.*; .*4\.png is not an image .*on_problem=skip"):
        train_run(recipe_of(config), tmp_path / "refused")
    train_run(recipe_of(config, data={"on_problem": "skip"}), tmp_path / "skipped")
    printed = capsys.readouterr().out
    assert "2 photos could not be read" in printed
    assert "2.png" in printed
    store = FeatureStore(next(tmp_path.glob("skipped/features/*/train")))
    assert [store.record.images[row] for row in sorted(store.unreadable)] == ["2.png", "4.png"]
    # So is one of an encoder that is trained, by the step that reads it.
    with pytest.raises(UserError, match=r"[24]\.png"):
        train_run(recipe_of(config, encoder={"train": True}), tmp_path / "trained")
    # Repaired, the refused run goes on with what it had.
    for photo, content in zip(photos, good, strict=True):
        photo.write_bytes(content)
    train_run(recipe_of(config), tmp_path / "refused", resume=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"word_vectors": {"file": "gone.txt"}}, r"gone\.txt cannot be read"),
        (
            {"data": {"instances": "gone.json"}, "objective": {"grounding": 1.0}},
            r"gone\.json does not exist",
        ),
        (
            {"data": {"train": "one"}, "objective": {"self_critical": {}}},
            "needs at least 2 images, not 1",
        ),
        ({"validation": {"images": 1}}, "two photos or more to validate on, and there are 1"),
    ],
)
def test_nothing_is_written_before_all_files_are_read(
    config: Config, tmp_path: Path, changes: Config, sentence: str
) -> None:
    table = Path(config["data"]["annotations"])
    table.write_text(table.read_text().replace("train", "one", 2))
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(config, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_validation_photo_that_can_be_read_is_refused_before_training(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "photos" / "7.png").write_bytes(b"no photo")
    recipe = recipe_of(config, data={"on_problem": "skip"})
    with pytest.raises(UserError, match="two photos or more to validate on, and there are 1"):
        train_run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "last.safetensors").exists()


def test_the_captions_of_the_best_validation_are_beside_the_model(
    config: Config, tmp_path: Path
) -> None:
    recipe = recipe_of(config)
    model = captioner.load(train_run(recipe, tmp_path / "run"))
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [record["image_id"] for record in found] == ["6.png", "7.png"]
    _, validation, _ = read_training(recipe.data)
    scores = scores_of([record["caption"] for record in found], validation)
    kept = json.loads((tmp_path / "run" / "model" / "scores.json").read_text())
    assert scores == pytest.approx(kept)
    assert {record["caption"] for record in found} <= {
        model.caption([tmp_path / "photos" / name])[0].text for name in ("6.png", "7.png")
    }


def test_two_runs_do_not_train_in_one_folder(config: Config, tmp_path: Path) -> None:
    with (
        folder_lock(tmp_path / "run", "run"),
        pytest.raises(UserError, match=r"run .*run is in use by another process"),
    ):
        train_run(recipe_of(config), tmp_path / "run")
    train_run(recipe_of(config), tmp_path / "run")


def coco_file(folder: Path, name: str, numbers: list[int]) -> Path:
    captions = {number: [f"photo number {number} of a dog"] for number in numbers}
    return coco_samples.write_captions(folder / name, captions, "{:012d}.jpg")


def test_results_are_what_the_tools_of_coco_read(tmp_path: Path) -> None:
    from pycocotools.coco import COCO

    numbers = [37777, 12]
    file = coco_file(tmp_path, "captions_val2017.json", numbers)
    for number in numbers:
        (tmp_path / f"{number:012d}.jpg").touch()
    examples = read_examples("coco", file, tmp_path, "val")
    captions = zip((each.image_id for each in examples), ("a dog", "two dogs"), strict=True)
    write_results(tmp_path / RESULTS, dict(captions))
    loaded = COCO(str(file)).loadRes(str(tmp_path / "results.json"))
    found = {a["image_id"]: a["caption"] for a in loaded.dataset["annotations"]}
    assert found == {37777: "a dog", 12: "two dogs"}


def test_validation_captions_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    """As COCO's are."""
    files = {}
    for split, numbers in (("train", [1, 2]), ("val", [3, 4])):
        files[split] = coco_file(tmp_path, f"captions_{split}2017.json", numbers)
        for number in numbers:
            save_photo(tmp_path / f"{split}2017" / f"{number:012d}.jpg", number)
    annotations = {"annotations": files["train"], "validation_annotations": files["val"]}
    data = DataConfig(format="coco", images=tmp_path, **annotations)
    train, validation, sentences = read_training(data)
    assert [[each.image_id for each in split] for split in (train, validation)] == [[1, 2], [3, 4]]
    assert sentences == []


def test_exact_match_is_of_words_whatever_stands_between_them(tmp_path: Path) -> None:
    save_photo(tmp_path / "a.png", 1)
    save_photo(tmp_path / "b.png", 2)
    (tmp_path / "t.csv").write_text("image,caption\na.png,A man's hat.\nb.png,It doesn't\n")
    examples = read_examples("table", tmp_path / "t.csv")
    assert examples[0].words == [["a", "man", "'s", "hat"]]
    assert scores_of(["a man's hat", "it doesn't"], examples)["exact match"] == 1.0
    assert scores_of(["a man 's hat", "it does n't"], examples)["exact match"] == 1.0
    assert scores_of(["a man hat", "it does"], examples)["exact match"] == 0.0


def test_batches_mix_lengths_where_batch_normalisation_is_trained(config: Config) -> None:
    examples = [(0, [4] * (1 + number % 8)) for number in range(64)]

    def spread(train: bool) -> float:
        encoder = {"train": train}
        recipe = recipe_of(config, encoder=encoder, training={"batch_size": 8})
        batches = whole_batches(CaptionBatches(examples, DrawnRows(), recipe), 0)
        return sum(float(batch.mask.sum(1).float().std()) for batch in batches) / 8

    assert spread(train=False) == 0
    assert spread(train=True) > 1.5
