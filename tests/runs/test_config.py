import re
import shlex
from pathlib import Path

import pytest
import yaml
from run_samples import translation_mapping, write_config

from captioner.cli.main import build_parser
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe, EncoderRecipe
from captioner.runs.read_recipe import read_any_recipe, read_recipe
from captioner.schema import from_mapping, to_mapping

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
    assert critical.start_from == f"runs/{data}_soft/model"
    assert critical.objective.self_critical is not None
    assert soft.start_from is hard.start_from is None
    # Xu et al. 2015, section 4.1 and 4.3.
    assert (hard.objective.semi_sampling, hard.objective.baseline_decay) == (0.5, 0.9)
    assert soft.training.batch_size == hard.training.batch_size == 64
    paper = "rmsprop" if data == "flickr8k" else "adam"
    assert soft.training.optimizer == hard.training.optimizer == paper


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
        ("features: {mirror: true}\nencoder: {train: true}", "augmentation.mirror is for"),
        ("features: {store: false, mirror: true}", "features.mirror is for stored features"),
        ("augmentation: {mirror: true}", "augmentation has no effect"),
        (
            "decoder: {standardise: true}\nencoder: {weights: random, train: true}",
            "decoder.standardise takes annotation vectors as they are before training",
        ),
        ("training: {optimizer: rmsprop, weight_decay: 0.1}", "weight_decay is of the optimizer"),
        ("data: {format: coco}", "annotations"),
        ("data: {format: shapes, instances: b}", "need each other"),
        (
            "data: {format: shapes, texts: b}\nobjective: {self_critical: {}}",
            "data.texts has no effect without objective.self_critical.fluency_weight",
        ),
        (
            "data: {format: shapes, instances: b}\n"
            "objective: {grounding: 0.1}\nfeatures: {mirror: true}",
            "boxes of the photos as they are",
        ),
        ("data: " + "[" * 5000, "not valid YAML"),
        ("data: {format: 2001-99-99}", "month must be in 1..12"),
        ("data: [", "not valid YAML"),
        ("just a sentence", "just a sentence"),
    ],
)
def test_what_is_no_config_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    shapes = "" if "data" in text or text == "just a sentence" else "data: {format: shapes}\n"
    with pytest.raises(UserError) as caught:
        read_recipe(write(tmp_path / "recipe.yaml", shapes + text))
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
        (
            "model: {sequence_to_sequence: {}}\nsearch: {copy_unknown: true}",
            "search.copy_unknown has no effect: it needs a model with attention",
        ),
    ],
)
def test_bad_fields_of_a_translator_are_named(tmp_path: Path, changes: str, message: str) -> None:
    mapping = translation_mapping(**yaml.safe_load(changes))
    with pytest.raises(UserError, match=f"config .*config.yaml.*{message}"):
        read_any_recipe(write_config(tmp_path, mapping))


def test_changes_are_put_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "recipe.yaml", "data: {format: shapes}\ntraining: {epochs: 3}")
    recipe = read_recipe(path, ["training.epochs=7", "decoder.gate=vector", "data.shapes.train=9"])
    assert recipe.training.epochs == 7
    assert recipe.decoder.gate == "vector"
    assert recipe.data.shapes.train == 9


@pytest.mark.parametrize("text", ["4e-4", "4.0e-4", "4E+2", ".5", "1.", "1.e2", "3", "1e3"])
def test_numbers_are_read_as_yaml_has_them_now(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.yaml", f"data: {{format: shapes}}\ntraining: {{clip_norm: {text}}}")
    assert read_recipe(path).training.clip_norm == float(text)
    changed = read_recipe(path, [f"training.learning_rate={text}"])
    assert changed.training.learning_rate == float(text)


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


def test_batch_normalisation_that_was_trained_is_frozen() -> None:
    assert EncoderRecipe(name="vgg11_bn", weights="imagenet", train=True).batch_norm_frozen
    assert not EncoderRecipe(name="vgg11_bn", weights="random", train=True).batch_norm_frozen
