"""Configs, published and changed, and what is refused before anything is written."""

import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path

import pytest
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
from samples import Patch, Refused

from captioner.cli.main import build_parser, main
from captioner.errors import UserError
from captioner.files import lock
from captioner.model_folders import model_folder
from captioner.runs import run
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_recipe import (
    captioning_recipe,
    read_any_recipe,
    read_mapping,
    read_recipe,
)
from captioner.runs.run import train_run
from captioner.schema import from_mapping, to_mapping

PUBLISHED = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_config_is_valid(path: Path) -> None:
    recipe = read_any_recipe(path)
    assert from_mapping(type(recipe), to_mapping(recipe), "again") == recipe


def test_a_config_without_its_data_names_their_page(folder: Path, refused: Refused) -> None:
    for path in PUBLISHED:
        page = "translation" if path.stem.startswith("multi30k") else "training"
        recipe = read_any_recipe(path)
        if recipe.data.format not in ("shapes", "numbers", "table"):
            said = refused(["train", str(path), "--out", "run"])
            assert f" does not exist: see docs/{page}.md, or name another place by --set" in said
            assert not Path("run").exists()
    Path("captions_val2014.json").touch()
    files = ["data.annotations=captions_val2014.json", "data.format=coco"]
    changes = [part for change in files for part in ("--set", change)]
    sentence = refused(["train", str(PUBLISHED[0]), "--out", "run", *changes])
    assert "data.images data/coco does not exist: see docs/training.md" in sentence


def test_the_commands_in_comments_of_configs_parse() -> None:
    lines = "\n".join(path.read_text(encoding="utf-8") for path in PUBLISHED).splitlines()
    pattern = r"#.*(?:^ *|First: |`|-m |# *)captioner ([^`]+)"
    commands = {found[1] for line in lines if (found := re.search(pattern, line))}
    assert {command.split()[0] for command in commands} == {"features", "train"}
    for command in commands:
        build_parser().parse_args(shlex.split(command))


@pytest.mark.parametrize("data", ["coco", "flickr30k", "flickr8k"])
def test_every_data_set_has_a_config_for_every_objective(data: str) -> None:
    folder = PUBLISHED[0].parent
    soft, hard, critical = (
        read_recipe(folder / f"{data}_{kind}.yaml") for kind in ("soft", "hard", "self_critical")
    )
    assert soft.decoder == hard.decoder.replace(selection="soft") == critical.decoder
    # Self-critical training starts from where the soft run, started without --out, leaves it.
    assert critical.start_from == f"runs/{data}_soft/model"
    for section in ("data", "features", "preprocessing", "encoder"):
        assert getattr(soft, section) == getattr(hard, section) == getattr(critical, section)


def test_changes_are_put_over_the_file(tmp_path: Path) -> None:
    """Numbers are those of YAML 1.2."""
    path = write_config(tmp_path, {"data": {"format": "shapes"}, "training": {"epochs": 3}})
    recipe = read_recipe(path, ["decoder.gate=vector", "data.shapes.train=9"])
    assert (recipe.decoder.gate, recipe.data.shapes.train) == ("vector", 9)
    for text in ("4e-4", "4.0e-4", "4E+2", ".5", "1.", "1.e2", "3", "1e3"):
        recipe = read_recipe(path, [f"training.learning_rate={text}"])
        assert recipe.training.learning_rate == float(text)


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    path = write_config(tmp_path, SHAPES)
    paths = {"data.images": "a", "features.folder": "b", "encoder.weights": "c"}
    recipe = read_recipe(path, [f"{name}=~/{value}" for name, value in paths.items()])
    assert recipe.data.images == tmp_path / "a"
    assert recipe.features.folder == tmp_path / "b"
    assert recipe.encoder.weights == str(tmp_path / "c")
    os.symlink(model_folder("default"), tmp_path / "model")
    given = read_mapping(path, ["start_from=~/model"])
    given["decoder"] = given["encoder"] = {}  # They come from the model.
    assert captioning_recipe(given, path).start_from == str(tmp_path / "model")
    assert captioning_recipe(given, path).encoder.weights == str(tmp_path / "model")


def test_another_encoder_leaves_the_rest_of_a_config_as_it_is(monkeypatch: Patch) -> None:
    given: list[CaptioningRecipe] = []
    monkeypatch.setattr(run, "train_run", lambda recipe, *_: given.append(recipe))
    for name in ("shapes_soft", "flickr8k_soft"):
        config = str(PUBLISHED[0].parent / f"{name}.yaml")
        assert main(["train", config, "--encoder", "vgg16", "--device", "cpu"]) == 0
        plain = read_recipe(config)
        expected = plain.encoder.replace(name="vgg16", width=1.0, weights="pretrained")
        assert given[-1].encoder == expected
        assert given[-1].features.folder is None  # The config's is of another encoder.
        assert given[-1].replace(encoder=plain.encoder, features=plain.features) == plain


SHAPES: Config = {"data": {"format": "shapes"}}
BOXES: Config = {"data": {"format": "shapes", "instances": "b"}}
GROUNDING: Config = {"objective": {"grounding": 0.1}}
HARD = {"selection": "hard"}
TRANSLATE = translation_mapping()

CONFIGS: list[tuple[Config, str]] = [
    ({"epochs": 3}, "'epochs'; did you mean 'training.epochs'?"),
    (GROUNDING, "grounding and data.instances need each other"),
    ({"decoder": HARD, **GROUNDING, **BOXES}, "grounding is for soft"),
    ({"decoder": HARD, "objective": {"self_critical": {}}}, "self_critical is for soft"),
    ({"encoder": {"name": "vgg7"}}, "vgg7"),
    ({"encoder": {"train": True, "train_from": 6}}, "train_from 6"),
    ({"features": {"mirror": True}, "encoder": {"train": True}}, "features.mirror for stored"),
    ({"augmentation": {"mirror": True}}, "augmentation is for photos that are read in"),
    ({"training": {"optimizer": "rmsprop", "weight_decay": 0.1}}, "weight_decay is of the"),
    ({"data": {"format": "coco"}}, "annotations"),
    ({**BOXES, **GROUNDING, "features": {"mirror": True}}, "boxes of the photos as they are"),
    ({**TRANSLATE, "data": {"format": "parallel"}}, "data.source is missing; format 'parallel'"),
    ({**TRANSLATE, "data": numbers(train=90)}, "validation are more than the numbers to 99"),
    ({**TRANSLATE, "text": {"kind": "subwords", "case": "sentence"}}, "'sentence' is of words"),
    ({**TRANSLATE, "model": {"gnmt": {"tie_embeddings": "all"}}}, "'all' needs text.joint"),
    ({**TRANSLATE, "task": "sing"}, "task 'sing' is not 'translate'"),
]

TEXTS = [
    ("data: " + "[" * 5000, "not valid YAML"),
    ("data: {format: 2001-99-99}", "month must be in 1..12"),
    ("just a sentence", "just a sentence"),
    ("a: &a [x, x]\ntask: [*a, *a]\n", "(line 2: the alias *a is not read; write its value)"),
    ("data: {}\ntraining: {}\ndata: {}\n", "(line 3: 'data' is given twice)"),
    ("training:\n  <<: {seed: 1}\n  seed: 2\n  'seed': 2\n", "(line 4: 'seed' is given twice"),
    ('{"data": {"format": "shapes",\n"format": "coco"}}', "(line 2: 'format' is given twice"),
]

CHANGES = [
    ("training.learning_rate=0.5.1", "should be a valid number"),
    ("training.learning_rate=4e-", "should be a valid number"),
    ("training.epochs=1e1", "epochs should be a valid integer"),
    ("training.epochs=" + "[" * 5000, "epochs should be a valid integer"),
    ("training.epochs", "should read section.field=value"),
    ("data.format.deep=3", "names a field of something that has none"),
    ("nothing.x=1", "unknown field 'nothing'"),
    ('data.images="\\0"', "data.images should be a path without NUL, found"),
]


@pytest.mark.parametrize(("given", "named"), [*CONFIGS, *TEXTS, *CHANGES])
def test_a_wrong_config_is_refused(tmp_path: Path, given: Config | str, named: str) -> None:
    path = write_config(tmp_path, {**SHAPES, **given} if isinstance(given, dict) else SHAPES)
    if (given, named) in TEXTS:
        Path(path).write_text(str(given), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_any_recipe(path, [str(given)] if (given, named) in CHANGES else [])
    sentence = str(caught.value)
    assert named in sentence
    assert "\n" not in sentence
    assert "config.yaml" in sentence or sentence.startswith("change ")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": {"train": "one"}, "objective": {"self_critical": {}}}, "at least 2 images"),
        ({"encoder": {"weights": "gone.pth"}}, "weights file gone.pth cannot be read"),
        ({"preprocessing": {"size": 8}}, "preprocessing size 8 is too small"),
        ({"start_from": "nowhere"}, "model 'nowhere' is neither a folder nor one of the"),
        ({"decoder": {"hidden_size": 9}}, r"does not fit this decoder: tensor .* not "),
        ({"decoder": {"gate": "none"}}, "does not fit this decoder: tensor .* (missing|belong)"),
        ({"training": {"seed": 3}}, "was trained on another encoder than this recipe's: tensor"),
        ({"text": {"joint": True}}, r"text\.joint should be false, as in start_from"),
        ({"model": luong(embedding_size=7)}, r"start_from .*first does not fit this model"),
        ({"text": {"kind": "subwords", "size": 256}}, r"cannot learn text\.size 256 subwords: "),
    ],
)
def test_nothing_is_written_before_all_files_are_read(
    config: Config, tmp_path: Path, changes: Config, sentence: str
) -> None:
    make = translation_recipe if {"text", "model"} & changes.keys() else partial(recipe_of, config)
    if "start_from" in sentence or {"decoder", "training"} & changes.keys():
        train_run(make(training={"epochs": 1}), tmp_path / "first")
        changes = {"start_from": str(tmp_path / "first"), **changes}
    table = Path(config["data"]["annotations"])
    table.write_text(table.read_text().replace("train", "one", 2))
    with pytest.raises(UserError, match=sentence):
        train_run(make(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_missing_photos_or_packages_and_a_locked_folder_are_named(
    config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "photos" / "7.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match="6 photos to train on and 1 to validate on are too few"):
        train_run(recipe_of(config, data={"on_problem": "skip"}), tmp_path / "one")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"package tensorboard: pip install .captioner\[tens"):
        train_run(recipe_of(config, training={"tensorboard": True}), tmp_path / "run")
    in_use = pytest.raises(UserError, match=r"run .*run is in use by another process")
    with lock(tmp_path / "run" / ".lock", "run"), in_use:
        train_run(recipe_of(config), tmp_path / "run")


@pytest.mark.parametrize(
    ("made_with", "changes", "sentence"),
    [
        ({}, {"training": {"batch_size": 2}}, r"training\.batch_size 4, not 2; .*--start-from"),
        ({"training": {"schedule": "cosine"}}, {}, r"depends on training\.epochs 1, not 2; give"),
        ({"objective": {"scheduled_sampling": 0.5}}, {}, r"on training\.epochs 1, not 2; give"),
        ({"training": {"validate_every": 2}}, {}, r"on training\.epochs 1, not 2; give"),
    ],
)
def test_a_run_is_not_resumed_with_another_config(
    config: Config, tmp_path: Path, made_with: Config, changes: Config, sentence: str
) -> None:
    made = merged(config, **made_with)
    folder = tmp_path / "run"
    train_run(recipe_of(merged(made, training={"epochs": 1})), folder)
    before = (folder / "config.json").read_bytes()
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(made, **changes), folder, resume=True)
    with pytest.raises(UserError, match="give --resume"):
        train_run(recipe_of(config), folder)
    with pytest.raises(UserError, match=r"cannot resume .*run, a run of another task or"):
        train_run(translation_recipe(data=numbers()), folder, resume=True)
    (folder / "last.safetensors").write_bytes(b"cut off")
    with pytest.raises(UserError, match=r"last\.safetensors cannot be read"):
        train_run(recipe_of(merged(made, training={"epochs": 1})), folder, resume=True)
    assert (folder / "config.json").read_bytes() == before


@pytest.mark.parametrize("text", ["task: {}", "{}: 1", "encoder: {{name: {}}}"])
def test_a_long_value_is_not_printed_whole(tmp_path: Path, refused: Refused, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text.format("x" * 100_000))
    assert len(refused(["train", str(path), "--out", str(tmp_path / "run")])) < 1_500
