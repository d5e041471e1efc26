"""Whole runs on a GPU: learning in narrow types, resuming on another device, two processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_samples import DEVICE, needs_gpu

import captioner
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run

pytestmark = needs_gpu

CONFIGS = Path(captioner.__file__).parents[1] / "configs"

NUMBERS = CONFIGS / "numbers.yaml"

SHORT = ["training.epochs=2", "data.numbers.train=300", "data.numbers.validation=20"]


def last_record(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
    return record


@pytest.mark.parametrize(
    ("config", "changes", "least"),
    [
        (NUMBERS, ["training.precision=bfloat16"], 0.9),
        (NUMBERS, ["training.precision=float16"], 0.9),
        (
            CONFIGS / "shapes_soft.yaml",
            [
                *("data.shapes.train=2400", "data.shapes.validation=100"),
                *("preprocessing.size=64", "training.precision=bfloat16"),
            ],
            0.5,
        ),
    ],
)
def test_a_toy_task_is_learned_in_a_narrow_type(
    config: Path, changes: list[str], least: float, tmp_path: Path
) -> None:
    recipe = read_any_recipe(config, changes)
    assert recipe.training.precision != "float32"
    train_run(recipe, tmp_path, device=DEVICE)
    assert last_record(tmp_path)["exact match"] >= least


@pytest.mark.parametrize(("first", "second"), [(DEVICE, "cpu"), ("cpu", DEVICE)])
def test_a_run_goes_on_on_another_device(first: Any, second: Any, tmp_path: Path) -> None:
    constant = [*SHORT, "training.schedule=constant"]
    once = read_any_recipe(NUMBERS, [*constant, "training.epochs=1"])
    train_run(once, tmp_path / "run", device=first)
    train_run(read_any_recipe(NUMBERS, constant), tmp_path / "run", resume=True, device=second)
    train_run(read_any_recipe(NUMBERS, constant), tmp_path / "whole", device="cpu")
    found, expected = (last_record(tmp_path / name) for name in ("run", "whole"))
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=0.05)
