"""Whole runs, small: every road from data to a model folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from samples import save_photo

import captioner
from captioner.errors import UserError
from captioner.fields import from_mapping
from captioner.recipes.captioning import (
    CaptionBatches,
    StoredRows,
    scores_of,
    store_recipe_features,
    train_captioner,
)
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.sources import read_sources
from captioner.vision.feature_store import FeatureStore

SMALL = {
    "minimum_count": 1,
    "preprocessing": {"size": 64, "resize": "squash"},
    "encoder": {"name": "vgg11_bn", "width": 0.05, "weights": "random"},
    "decoder": {"embedding_size": 8, "hidden_size": 8, "attention_size": 8},
    "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.01},
    "search": {"beam": 2, "maximum_length": 8},
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Eight photos with two captions each, six to train on."""
    lines = []
    for number in range(8):
        save_photo(tmp_path / "photos" / f"{number}.png", seed=number)
        split = "train" if number < 6 else "val"
        for caption in (f"photo of the number {number}", "a photo of a colour"):
            record = {"image": f"{number}.png", "caption": caption, "split": split}
            lines.append(json.dumps(record))
    path = tmp_path / "captions.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def data_of(table: Path) -> dict[str, str]:
    return {
        "format": "table",
        "annotations": str(table),
        "images": str(table.parent / "photos"),
    }


def recipe_for(table: Path, **changes: object) -> CaptioningRecipe:
    mapping = {"data": data_of(table), **SMALL, **changes}
    return from_mapping(CaptioningRecipe, mapping, "recipe")


def test_a_run_on_stored_features_gives_a_model_that_captions(table: Path, tmp_path: Path) -> None:
    folder = train_captioner(recipe_for(table), tmp_path / "run")
    model = captioner.load(folder)
    caption = model.caption([tmp_path / "photos" / "7.png"])[0]
    assert caption.words
    assert caption.attention.shape == (len(caption.words), 4, 4)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2]
    assert {"train_loss", "CIDEr-D", "BLEU-4", "brevity_penalty"} <= log[0].keys()
    assert (tmp_path / "run" / "config.json").exists()


def test_a_run_that_trains_its_encoder_changes_it(table: Path, tmp_path: Path) -> None:
    encoder = {**SMALL["encoder"], "train": True}  # type: ignore[dict-item]
    folder = train_captioner(recipe_for(table, encoder=encoder), tmp_path / "run")
    trained = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    from captioner.vision.vgg import VGGConfig, VGGEncoder

    fresh = VGGEncoder(VGGConfig("vgg11_bn", 0.05)).state_dict()
    name = "features.0.weight"
    assert not torch.allclose(trained[f"encoder.{name}"].float(), fresh[name], atol=1e-3)
    assert not (tmp_path / "run" / "features").exists()


def test_a_run_split_in_two_equals_one_in_one_go(table: Path, tmp_path: Path) -> None:
    whole, split = tmp_path / "whole", tmp_path / "split"
    train_captioner(recipe_for(table), whole)
    once = {**SMALL["training"], "epochs": 1}  # type: ignore[dict-item]
    train_captioner(recipe_for(table, training=once), split)
    train_captioner(recipe_for(table), split, resume=True)
    first, second = (load_file(run / "last.safetensors") for run in (whole, split))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_folder_with_a_run_is_not_overwritten(table: Path, tmp_path: Path) -> None:
    train_captioner(recipe_for(table), tmp_path / "run")
    with pytest.raises(UserError, match="--resume"):
        train_captioner(recipe_for(table), tmp_path / "run")


def test_mirrored_photos_are_stored_and_used(table: Path, tmp_path: Path) -> None:
    features = {"folder": str(tmp_path / "store"), "mirror": True}
    recipe = recipe_for(table, features=features)
    stores = store_recipe_features(recipe)
    assert len(stores["train"]) == 12
    assert len(stores["validation"]) == 2
    rows = StoredRows(stores["train"], 6, True)
    seen = rows.read(torch.zeros(64, dtype=torch.long), torch.Generator().manual_seed(0))
    plain, flipped = stores["train"].read([0, 6])
    assert {bool(torch.equal(row, plain)) for row in seen} == {True, False}
    assert all(torch.equal(row, plain) or torch.equal(row, flipped) for row in seen)
    # A mirrored photo gives other annotation vectors: not the same set in another order.
    assert not torch.allclose(plain.sum(0), flipped.sum(0), atol=1e-3)


def test_two_runs_share_a_store(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "encoder.safetensors"
    from safetensors.torch import save_file

    from captioner.vision.vgg import VGGConfig, VGGEncoder

    save_file(VGGEncoder(VGGConfig("vgg11_bn", 0.05)).state_dict(), weights)
    encoder = {**SMALL["encoder"], "weights": str(weights)}  # type: ignore[dict-item]
    recipe = recipe_for(table, encoder=encoder, features={"folder": str(tmp_path / "store")})
    train_captioner(recipe, tmp_path / "one")
    before = (tmp_path / "store" / "train" / "annotations.bin").stat().st_mtime_ns
    train_captioner(recipe, tmp_path / "two")
    assert (tmp_path / "store" / "train" / "annotations.bin").stat().st_mtime_ns == before
    assert FeatureStore(tmp_path / "store" / "train").shape == (16, 512)


def test_batches_of_a_resumed_epoch_are_those_of_a_whole_one(table: Path) -> None:
    recipe = recipe_for(table)
    train, _ = read_sources(recipe.data)
    from captioner.data.examples import CaptionExample

    examples = [CaptionExample(row % len(train), [4, 5]) for row in range(14)]

    class Noise(StoredRows):
        def __init__(self) -> None:
            pass

        def read(
            self, rows: torch.Tensor, generator: torch.Generator | None = None
        ) -> torch.Tensor:
            return torch.rand(len(rows), 1, 2, generator=generator)

    batches = CaptionBatches(examples, Noise(), recipe)
    whole = list(batches.batches(3, 0))
    assert len(whole) == batches.steps(3) == 4
    for resumed, original in zip(batches.batches(3, 2), whole[2:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(resumed, original, strict=True))
    assert any(
        not torch.equal(a.source, b.source)
        for a, b in zip(whole, batches.batches(4, 0), strict=True)
    )


def test_a_photo_in_both_splits_is_refused(tmp_path: Path) -> None:
    save_photo(tmp_path / "a.png")
    (tmp_path / "train.csv").write_text("image,caption\na.png,one\n")
    (tmp_path / "val.csv").write_text("image,caption\na.png,two\n")
    data = {
        "format": "table",
        "annotations": str(tmp_path / "train.csv"),
        "validation_annotations": str(tmp_path / "val.csv"),
        "train": None,
        "validation": None,
    }
    recipe = from_mapping(CaptioningRecipe, {**SMALL, "data": data}, "recipe")
    with pytest.raises(UserError, match=r"a\.png"):
        read_sources(recipe.data)


def test_exact_match_counts_whole_captions(table: Path) -> None:
    _, validation = read_sources(recipe_for(table).data)
    scores = scores_of(["photo of the number 6", "a photo of a color"], validation)
    assert scores["exact match"] == 0.5


def test_an_unreadable_photo_is_refused_by_name_or_left_out(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "photos" / "2.png"
    good = bad.read_bytes()
    bad.write_bytes(good[:40])
    with pytest.raises(UserError, match=r"2\.png"):
        train_captioner(recipe_for(table), tmp_path / "refused")
    skipping = recipe_for(table, data={**data_of(table), "on_problem": "skip"})
    train_captioner(skipping, tmp_path / "skipped")
    printed = capsys.readouterr().out
    assert "1 photos could not be read" in printed
    assert "2.png" in printed
    store = FeatureStore(tmp_path / "skipped" / "features" / "train")
    assert [Path(name).name for name in store.unreadable] == ["2.png"]
    # Repaired, the refused run goes on with what it had.
    bad.write_bytes(good)
    train_captioner(recipe_for(table), tmp_path / "refused", resume=True)
