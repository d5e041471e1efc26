"""Runs that are refused, before anything is written or changed."""

import sys
from pathlib import Path
from typing import Any

import pytest
from run_samples import Config, luong, merged, numbers, recipe_of, translation_recipe
from samples import Patch, save_photo

from captioner.errors import UserError
from captioner.files import folder_lock
from captioner.runs.captioning_recipe import DataConfig, read_training
from captioner.runs.run import train_run


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"word_vectors": {"file": "gone.txt"}}, r"gone\.txt"),
        (
            {"data": {"instances": "gone.json"}, "objective": {"grounding": 1.0}},
            r"gone\.json does not exist",
        ),
        (
            {"data": {"train": "one"}, "objective": {"self_critical": {}}},
            "needs at least 2 images, not 1",
        ),
        ({"validation": {"images": 1}}, "two photos or more to validate on, and there are 1"),
        ({"encoder": {"weights": "gone.pth"}}, "weights file gone.pth does not exist"),
        ({"preprocessing": {"size": 8}}, "preprocessing size 8 is too small"),
        ({"start_from": "nowhere"}, "model 'nowhere' is neither a folder nor one of the"),
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


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decoder": {"hidden_size": 9}}, r"does not fit this decoder: tensor .* not "),
        ({"decoder": {"gate": "none"}}, "does not fit this decoder: tensor .* (missing|belong)"),
        ({"training": {"seed": 3}}, "was trained on another encoder than this recipe's: tensor"),
    ],
)
def test_a_start_that_does_not_fit(
    config: Config, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "first")
    changes = {"start_from": str(tmp_path / "first" / "model"), **changes}
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(config, **changes), tmp_path / "second")
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": {"joint": True}}, r"text\.joint should be false, as in start_from"),
        ({"model": luong(embedding_size=7)}, r"start_from .*first does not fit this model"),
        (
            {"start_from": None, "text": {"kind": "subwords", "size": 256}},
            r"cannot learn 256 subwords .*; set text\.size",
        ),
    ],
)
def test_a_translator_that_cannot_begin(tmp_path: Path, changes: Config, sentence: str) -> None:
    train_run(translation_recipe(training={"epochs": 1}), tmp_path / "first")
    changes = {"start_from": str(tmp_path / "first"), **changes}
    with pytest.raises(UserError, match=sentence):
        train_run(translation_recipe(**changes), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_photo_in_both_splits_is_refused(tmp_path: Path) -> None:
    save_photo(tmp_path / "a.png")
    files = tmp_path / "train.csv", tmp_path / "val.csv"
    for file in files:
        file.write_text("image,caption\na.png,one\n")
    fields = dict(zip(("annotations", "validation_annotations"), files, strict=True))
    with pytest.raises(UserError, match=r"a\.png"):
        read_training(DataConfig(format="table", **fields))


def test_photos_packages_and_folders_that_a_run_lacks(
    config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "photos" / "7.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match="two photos or more to validate on, and there are 1"):
        train_run(recipe_of(config, data={"on_problem": "skip"}), tmp_path / "one")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"package tensorboard: pip install .captioner\[tens"):
        train_run(recipe_of(config, training={"tensorboard": True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    in_use = pytest.raises(UserError, match=r"run .*run is in use by another process")
    with folder_lock(tmp_path / "run", "run"), in_use:
        train_run(recipe_of(config), tmp_path / "run")


@pytest.mark.parametrize(
    ("objective", "learning_rate"),
    [({"doubly_stochastic": 0.0}, 1e38), ({"scheduled_sampling": 1.0}, 1e30)],
)
def test_a_draw_from_what_is_no_number_is_a_sentence(
    config: Config, tmp_path: Path, objective: Config, learning_rate: float
) -> None:
    decoder = {"selection": "hard" if "doubly_stochastic" in objective else "soft"}
    training = {"learning_rate": learning_rate}
    recipe = recipe_of(config, decoder=decoder, objective=objective, training=training)
    sentence = r"(too large for one,|gradient nan) at step \d, in epoch 1: lower learning_rate"
    with pytest.raises(UserError, match=sentence):
        train_run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "last.safetensors").exists()


# Resuming.


@pytest.mark.parametrize(
    ("made_with", "changes", "sentence"),
    [
        ({}, {"training": {"batch_size": 2}}, "with training.batch_size 4, not 2; "),
        ({}, {"search": {"beam": 1}}, "with search.beam 2, not 1; "),
        ({}, {"features": {"mirror": True}}, "with features.mirror False, not True; "),
        (
            {"training": {"schedule": "cosine"}},
            {"training": {"epochs": 2}},
            r"training.epochs 1, not 2, which the schedule cosine .*: --start-from .*/run, another",
        ),
        (
            {"objective": {"scheduled_sampling": 0.5}},
            {"training": {"epochs": 2}},
            r"training.epochs 1, not 2, which scheduled sampling .*: --start-from .*/run, another",
        ),
    ],
)
def test_a_run_is_not_resumed_with_another_config(
    config: Config, tmp_path: Path, made_with: Config, changes: Config, sentence: str
) -> None:
    made = merged(merged(config, **made_with), training={"epochs": 1})
    made["training"] |= made_with.get("training", {})
    train_run(recipe_of(made), tmp_path / "run")
    records = [tmp_path / "run" / name for name in ("config.json", "environment.json")]
    before = [path.read_bytes() for path in records]
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(made, **changes), tmp_path / "run", resume=True)
    assert [path.read_bytes() for path in records] == before


def test_a_refused_resume_changes_nothing(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(recipe_of(config, training={"epochs": 1}), run)
    records = [run / "config.json", run / "environment.json"]
    before = [path.read_bytes() for path in records]
    with pytest.raises(UserError, match="give --resume"):
        train_run(recipe_of(config), run)
    with pytest.raises(UserError, match=r"cannot resume .*run: its run is of another task"):
        train_run(translation_recipe(data=numbers()), run, resume=True)
    checkpoint = run / "last.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"last\.safetensors cannot be read"):
        train_run(recipe_of(config), run, resume=True)
    assert [path.read_bytes() for path in records] == before
