"""Whole runs on a GPU: learning in narrow types, resuming on another device, two processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_samples import DEVICE, needs_gpu
from run_samples import ended, start
from safetensors.torch import load_file

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


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs")
def test_two_gpus_train_to_the_weights_of_one(tmp_path: Path) -> None:
    """In float32: Adam makes whole steps of gradients that TF32 rounds to another sign."""
    options = ["--device", "cuda", *(part for change in SHORT for part in ("--set", change))]
    weights = []
    for count in (1, 2):
        folder = tmp_path / str(count)
        command = ["train", str(NUMBERS), "--out", str(folder), *options]
        errors = ended(start(*command, processes=count, NVIDIA_TF32_OVERRIDE="0"))[-1]
        assert (folder / "model").is_dir(), errors[-3000:]
        weights.append(load_file(folder / "last.safetensors"))
    one, two = weights
    for name in (each for each in one if each.startswith("model.")):
        torch.testing.assert_close(two[name], one[name], rtol=1e-2, atol=1e-2)
