"""Configs and runs that are refused in one sentence, before anything is written or changed."""

import sys
from pathlib import Path

import pytest
import yaml
from run_samples import (
    Config,
    luong,
    merged,
    numbers,
    recipe_of,
    translation_mapping,
    translation_recipe,
    write_config,
)
from samples import Patch, save_photo

from captioner.errors import UserError
from captioner.files import folder_lock
from captioner.runs.captioning_recipe import DataConfig, read_training
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run

SHAPES = "data: {format: shapes}\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SHAPES + "epochs: 3", "'epochs'; did you mean 'training.epochs'?"),
        (SHAPES + "objective: {grounding: 0.1}", "grounding and data.instances need each other"),
        (
            SHAPES + "decoder: {selection: hard}\n"
            "objective: {doubly_stochastic: 0, self_critical: {}}",
            "self_critical is for soft attention",
        ),
        (SHAPES + "encoder: {name: vgg7}", "vgg7"),
        (SHAPES + "encoder: {train: true, train_from: 6}", "train_from 6"),
        (SHAPES + "features: {mirror: true}\nencoder: {train: true}", "features.mirror for stored"),
        (SHAPES + "augmentation: {mirror: true}", "augmentation is for photos that are read in"),
        (
            SHAPES + "decoder: {standardise: true}\nencoder: {weights: random, train: true}",
            "decoder.standardise takes annotation vectors as they are before training",
        ),
        (SHAPES + "training: {optimizer: rmsprop, weight_decay: 0.1}", "weight_decay is of the"),
        ("data: {format: coco}", "annotations"),
        (
            "data: {format: shapes, instances: b}\n"
            "objective: {grounding: 0.1}\nfeatures: {mirror: true}",
            "boxes of the photos as they are",
        ),
        ("data: " + "[" * 5000, "not valid YAML"),
        ("data: {format: 2001-99-99}", "month must be in 1..12"),
        ("just a sentence", "just a sentence"),
    ],
)
def test_what_is_no_config_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_any_recipe(path)
    sentence = str(caught.value)
    assert "recipe.yaml" in sentence
    assert named in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("data: {format: parallel}", "data.source is missing; format 'parallel'"),
        ("data: {format: numbers, numbers: {train: 90, largest: 99}}", "are more than there are"),
        ("text: {kind: subwords, case: sentence}", "text.case 'sentence' is of words"),
        ("model: {}", "one model of sequence_to_sequence"),
        ("model: {gnmt: {tie_embeddings: all}}", "'all' needs text.joint to be true"),
        ("task: sing", "task 'sing' is not 'translate'"),
        ("training: {batch_size: 32}", "batch_size has no effect: data.batch_tokens"),
    ],
)
def test_bad_fields_of_a_translator_are_named(tmp_path: Path, changes: str, message: str) -> None:
    mapping = translation_mapping(**yaml.safe_load(changes))
    with pytest.raises(UserError, match=f"config .*config.yaml.*{message}"):
        read_any_recipe(write_config(tmp_path, mapping))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("training.learning_rate=0.5.1", "should be a valid number"),
        ("training.learning_rate=4e-", "should be a valid number"),
        ("training.epochs=1e1", "epochs should be a valid integer"),
        ("training.epochs=" + "[" * 5000, "epochs should be a valid integer"),
        ("training.epochs", "should read section.field=value"),
        ("=3", "should read section.field=value"),
        ("data.format.deep=3", "names a field of something that has none"),
        ("nothing.x=1", "unknown field 'nothing'"),
    ],
)
def test_a_bad_change_is_refused(tmp_path: Path, change: str, sentence: str) -> None:
    path = write_config(tmp_path, {"data": {"format": "shapes"}})
    with pytest.raises(UserError, match=sentence):
        read_any_recipe(path, [change])


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
        ({"encoder": {"weights": "gone.pth"}}, "weights file gone.pth does not exist"),
        ({"preprocessing": {"size": 8}}, "preprocessing size 8 is too small"),
        ({"start_from": "nowhere"}, "model 'nowhere' is neither a folder nor one of the"),
        ({"decoder": {"hidden_size": 9}}, r"does not fit this decoder: tensor .* not "),
        ({"decoder": {"gate": "none"}}, "does not fit this decoder: tensor .* (missing|belong)"),
        ({"training": {"seed": 3}}, "was trained on another encoder than this recipe's: tensor"),
    ],
)
def test_nothing_is_written_before_all_files_are_read(
    config: Config, tmp_path: Path, changes: Config, sentence: str
) -> None:
    if {"decoder", "training"} & changes.keys():  # Of a start that does not fit.
        start = train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "first")
        changes = {"start_from": str(start), **changes}
    table = Path(config["data"]["annotations"])
    table.write_text(table.read_text().replace("train", "one", 2))
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(config, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"text": {"joint": True}}, r"text\.joint should be false, as in start_from"),
        ({"model": luong(embedding_size=7)}, r"start_from .*first does not fit this model"),
        (
            {"start_from": None, "text": {"kind": "subwords", "size": 256}},
            r"cannot learn text\.size 256 subwords: ",
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
    with pytest.raises(UserError, match="6 photos to train on and 1 to validate on are too few"):
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
    sentence = r"(too large for one,|gradient is nan) at step \d, in epoch 1: lower learning_rate"
    with pytest.raises(UserError, match=sentence):
        train_run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "last.safetensors").exists()


# Resuming.


@pytest.mark.parametrize(
    ("made_with", "changes", "sentence"),
    [
        ({}, {"training": {"batch_size": 2}}, r"training\.batch_size 4, not 2; .*--start-from"),
        ({}, {"features": {"mirror": True}}, "with features.mirror False, not True; "),
        ({"training": {"schedule": "cosine"}}, {}, "with training.epochs 1, not 2; "),
        ({"objective": {"scheduled_sampling": 0.5}}, {}, "with training.epochs 1, not 2; "),
    ],
)
def test_a_run_is_not_resumed_with_another_config(
    config: Config, tmp_path: Path, made_with: Config, changes: Config, sentence: str
) -> None:
    made = merged(config, **made_with)
    train_run(recipe_of(merged(made, training={"epochs": 1})), tmp_path / "run")
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(made, **changes), tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_a_refused_resume_changes_nothing(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(recipe_of(config, training={"epochs": 1}), run)
    before = (run / "config.json").read_bytes()
    with pytest.raises(UserError, match="give --resume"):
        train_run(recipe_of(config), run)
    with pytest.raises(UserError, match=r"cannot resume .*run, a run of another task or"):
        train_run(translation_recipe(data=numbers()), run, resume=True)
    checkpoint = run / "last.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"last\.safetensors cannot be read"):
        train_run(recipe_of(config), run, resume=True)
    assert (run / "config.json").read_bytes() == before
