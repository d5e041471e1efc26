from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from captioner.cli.main import build_parser
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe, EncoderRecipe
from captioner.runs.read_recipe import read_any_recipe, read_recipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.schema import from_mapping, to_mapping
from captioner.translate import TranslationModelConfig

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_published_config_is_valid(path: Path) -> None:
    recipe = read_any_recipe(path)
    assert from_mapping(type(recipe), to_mapping(recipe), "again") == recipe


def commands_in_comments() -> list[str]:
    """The arguments of `captioner`, or of torchrun's, that the comments of configs name."""
    lines = "\n".join(path.read_text(encoding="utf-8") for path in CONFIGS).splitlines()
    comments = [line.partition("#")[2] for line in lines]
    pattern = r"(?:^ *|First: |`|-m )captioner ([^`]+)"
    return sorted({found[1] for comment in comments if (found := re.search(pattern, comment))})


def test_the_commands_in_comments_of_configs_parse() -> None:
    commands = commands_in_comments()
    assert {command.split()[0] for command in commands} == {"features", "train"}
    for command in commands:
        build_parser().parse_args(shlex.split(command))


def published(name: str) -> CaptioningRecipe:
    (path,) = [path for path in CONFIGS if path.stem == name]
    return read_recipe(path)


@pytest.mark.parametrize("data", ["coco", "flickr30k", "flickr8k"])
def test_every_data_set_has_a_config_for_every_objective(data: str) -> None:
    soft, hard, critical = (
        published(f"{data}_{kind}") for kind in ("soft", "hard", "self_critical")
    )
    assert soft.decoder == hard.decoder.replace(selection="soft") == critical.decoder
    assert soft.data == hard.data == critical.data
    assert soft.features == hard.features == critical.features
    assert soft.preprocessing == hard.preprocessing == critical.preprocessing
    assert soft.encoder == hard.encoder == critical.encoder
    # Self-critical training starts from where the soft run, started without --out, leaves it.
    assert critical.start_from == Path("runs") / f"{data}_soft" / "model"
    assert critical.objective.self_critical is not None
    assert soft.start_from is hard.start_from is None
    # Xu et al. 2015, section 4.1 and 4.3.
    assert (hard.objective.semi_sampling, hard.objective.baseline_decay) == (0.5, 0.9)
    assert soft.training.batch_size == hard.training.batch_size == 64
    paper = "rmsprop" if data == "flickr8k" else "adam"
    assert soft.training.optimizer == hard.training.optimizer == paper


def test_multi30k_has_a_config_for_every_direction_and_every_model() -> None:
    models: dict[str, list[TranslationModelConfig]] = {}
    for path in CONFIGS:
        if not path.stem.startswith("multi30k_"):
            continue
        recipe = read_any_recipe(path)
        assert isinstance(recipe, TranslationRecipe)
        data, languages = recipe.data, path.stem.split("_")[1:3]
        files = (data.source, data.target, data.validation_source, data.validation_target)
        assert list(map(str, files)) == [
            f"data/multi30k/{part}.{language}.gz"
            for part in ("train", "val")
            for language in languages
        ]
        # German nouns have capitals: a sentence of nouns would be taken for a title.
        assert recipe.text.capitals == ("lines" if languages[0] == "de" else "titles")
        models.setdefault("_".join(languages), []).append(recipe.model)
    assert models.keys() == {"en_de", "de_en", "en_fr", "fr_en"}
    for found in models.values():
        (transformer,) = [model.transformer for model in found if model.transformer]
        assert transformer.alignment_layer == -2
    for family in TranslationModelConfig.model_fields:
        assert any(getattr(model, family) for model in models["en_de"]), family
    luong = [(model.luong.score, model.luong.attention) for model in models["en_de"] if model.luong]
    assert {"dot", "general", "concat"} == {score for score, kind in luong if kind == "global"}
    assert any(kind.startswith("local") for _, kind in luong)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("epochs: 3", "'epochs'; did you mean 'training.epochs'?"),
        ("objective: {semi_sampling: 0.1}", "objective.semi_sampling is for hard attention"),
        ("objective: {grounding: 0.1}", "objective.grounding and data.instances need each other"),
        (
            "decoder: {selection: hard}\nobjective: {doubly_stochastic: 0, self_critical: {}}",
            "self_critical is for soft attention",
        ),
        ("encoder: {name: vgg7}", "vgg7"),
        ("encoder: {train: true, train_from: 6}", "train_from 6"),
        ("word_vectors: {file: a.txt}\nstart_from: b", "word_vectors have no effect"),
        ("features: {mirror: true}\nencoder: {train: true}", "mirror"),
        ("features: {store: false, mirror: true}", "features.mirror has no effect"),
        ("augmentation: {mirror: true}", "augmentation has no effect"),
        (
            "decoder: {standardise: true}\nencoder: {weights: random, train: true}",
            "decoder.standardise takes annotation vectors as they are before training",
        ),
    ],
)
def test_a_bad_field_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    assert named in refusal(tmp_path, f"data: {{format: shapes}}\n{text}")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("data: {format: coco}", "annotations"),
        ("data: {format: table, annotations: a.csv, instances: b}", "need each other"),
        (
            "data: {format: table, annotations: a.csv, texts: b}\nobjective: {self_critical: {}}",
            "data.texts has no effect without objective.self_critical.fluency_weight",
        ),
        (
            "data: {format: table, annotations: a.csv, instances: b}\n"
            "objective: {grounding: 0.1}\nfeatures: {mirror: true}",
            "boxes of the photos as they are",
        ),
        ("data: " + "[" * 5000, "not valid YAML"),
        ("data: {format: 2001-99-99}", "month must be in 1..12"),
        ("data: [", "not valid YAML"),
        ("", "found nothing"),
        ("just a sentence", "just a sentence"),
    ],
)
def test_bad_data_and_what_is_no_config_are_refused(tmp_path: Path, text: str, named: str) -> None:
    assert named in refusal(tmp_path, text)


def refusal(folder: Path, text: str) -> str:
    """The sentence that refuses a config of this text."""
    with pytest.raises(UserError) as caught:
        read_recipe(write(folder / "recipe.yaml", text))
    sentence = str(caught.value)
    assert "recipe.yaml" in sentence
    assert "\n" not in sentence
    return sentence


def test_changes_are_put_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "recipe.yaml", "data: {format: shapes}\ntraining: {epochs: 3}")
    recipe = read_recipe(path, ["training.epochs=7", "decoder.gate=vector", "data.shapes.train=9"])
    assert recipe.training.epochs == 7
    assert recipe.decoder.gate == "vector"
    assert recipe.data.shapes.train == 9


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4e-4", 4e-4),
        ("4.0e-4", 4e-4),
        ("4E+2", 400.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1.e2", 100.0),
        ("3", 3.0),
        ("1e3", 1000.0),
    ],
)
def test_numbers_are_read_as_yaml_has_them_now(tmp_path: Path, text: str, number: float) -> None:
    path = write(tmp_path / "a.yaml", f"data: {{format: shapes}}\ntraining: {{clip_norm: {text}}}")
    assert read_recipe(path).training.clip_norm == number
    changed = read_recipe(path, [f"training.learning_rate={text}"])
    assert changed.training.learning_rate == number


NOT_NUMBERS = ["e4", "4e", "4e-", "0.5.1", ".", "-", "4e-4x"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        *((f"training.learning_rate={text}", "should be a number") for text in NOT_NUMBERS),
        ("training.epochs=1e1", "epochs should be a whole number"),
        ("training.epochs=" + "[" * 5000, "epochs should be a whole number"),
        ("training.epochs", "should read section.field=value"),
        ("=3", "should read section.field=value"),
        ("data.format.deep=3", "names a field of something that has none"),
        ("nothing.x=1", "unknown field 'nothing'"),
    ],
)
def test_a_bad_change_is_refused(tmp_path: Path, change: str, sentence: str) -> None:
    path = write(tmp_path / "recipe.yaml", "data: {format: shapes}")
    with pytest.raises(UserError, match=sentence):
        read_recipe(path, [change])


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.yaml"):
        read_recipe(tmp_path / "absent.yaml")


def test_batch_normalisation_that_was_trained_is_frozen() -> None:
    assert EncoderRecipe(name="vgg11_bn", weights="imagenet", train=True).batch_norm_frozen
    assert not EncoderRecipe(name="vgg11_bn", weights="random", train=True).batch_norm_frozen
