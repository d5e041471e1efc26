"""Configs: the published ones, changes over them, and how numbers are read."""

import re
import shlex
from pathlib import Path

import pytest
from run_samples import write_config

from captioner.cli.main import build_parser
from captioner.runs.read_recipe import read_any_recipe, read_recipe
from captioner.schema import from_mapping, to_mapping

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_published_config_is_valid(path: Path) -> None:
    recipe = read_any_recipe(path)
    assert from_mapping(type(recipe), to_mapping(recipe), "again") == recipe


def test_the_commands_in_comments_of_configs_parse() -> None:
    lines = "\n".join(path.read_text(encoding="utf-8") for path in CONFIGS).splitlines()
    pattern = r"#.*(?:^ *|First: |`|-m |# *)captioner ([^`]+)"
    commands = {found[1] for line in lines if (found := re.search(pattern, line))}
    assert {command.split()[0] for command in commands} == {"features", "train"}
    for command in commands:
        build_parser().parse_args(shlex.split(command))


@pytest.mark.parametrize("data", ["coco", "flickr30k", "flickr8k"])
def test_every_data_set_has_a_config_for_every_objective(data: str) -> None:
    folder = CONFIGS[0].parent
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
