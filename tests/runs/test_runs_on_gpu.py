"""Whole runs on a GPU: learning in narrow types."""

import json
from pathlib import Path

import pytest
from gpu_samples import DEVICE, needs_gpu

import captioner
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run

pytestmark = needs_gpu

CONFIGS = Path(captioner.__file__).parents[1] / "configs"
SHAPES = ["data.shapes.train=2400", "data.shapes.validation=100", "preprocessing.size=64"]


@pytest.mark.parametrize(
    ("config", "precision", "changes", "least"),
    [
        ("numbers", "bfloat16", [], 0.9),
        ("numbers", "float16", [], 0.9),
        ("shapes_soft", "bfloat16", SHAPES, 0.5),
    ],
)
def test_a_toy_task_is_learned_in_a_narrow_type(
    config: str, precision: str, changes: list[str], least: float, tmp_path: Path
) -> None:
    changes = [*changes, f"training.precision={precision}"]
    recipe = read_any_recipe(CONFIGS / f"{config}.yaml", changes)
    train_run(recipe, tmp_path, device=DEVICE)
    record = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert record["exact match"] >= least
