"""Photos with captions, and a config so small that a run takes a second."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file
from samples import log_of, save_photo
from torch import Tensor

import captioner
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.photos import Rows
from captioner.runs.run import Recipe, train_run
from captioner.runs.translation_task import TranslationRecipe
from captioner.schema import from_mapping
from captioner.training.batches import Batches
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig

Config = dict[str, Any]

SMALL: Config = {
    "minimum_count": 1,
    "preprocessing": {"size": 64, "resize": "squash"},
    "encoder": {"name": "vgg11_bn", "width": 0.05, "weights": "random"},
    "decoder": {"embedding_size": 8, "hidden_size": 8, "attention_size": 8},
    "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.01},
    "search": {"beam": 2, "maximum_length": 8},
}


def make_table(folder: Path, training: int = 6) -> dict[str, str]:
    """Eight photos with two captions each, the first so many to train on: the section `data`."""
    lines = []
    for number in range(8):
        save_photo(folder / "photos" / f"{number}.png", seed=number)
        split = "train" if number < training else "val"
        for caption in (f"photo of the number {number}", "a photo of a colour"):
            record = {"image": f"{number}.png", "caption": caption, "split": split}
            lines.append(json.dumps(record))
    path = folder / "captions.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return {"format": "table", "annotations": str(path), "images": str(folder / "photos")}


def merged(config: Config, **changes: Any) -> Config:
    found = dict(config)
    for name, value in changes.items():
        found[name] = {**found.get(name, {}), **value} if isinstance(value, dict) else value
    return found


def recipe_of(config: Config, **changes: Any) -> CaptioningRecipe:
    return from_mapping(CaptioningRecipe, merged(config, **changes), "recipe")


def numbers(train: int = 60, validation: int = 20, largest: int = 99) -> Config:
    counts = {"train": train, "validation": validation, "largest": largest}
    return {"format": "numbers", "numbers": counts, "batch_tokens": 80}


def luong(**fields: Any) -> Config:
    sizes = {"embedding_size": 6, "hidden_size": 8, "layers": 1, "score": "dot"}
    return {"luong": {**sizes, **fields}}


def translation_mapping(training: Config | None = None, **changes: Any) -> Config:
    """The config of a small translator, with other sections, and some other fields of training."""
    settings = {"epochs": 2, "learning_rate": 0.01, "schedule": "constant"}
    return {
        "task": "translate",
        "data": numbers(),
        "text": {"minimum_count": 1},
        "model": luong(),
        "training": {**settings, **(training or {})},
        "search": {"beam": 2, "maximum_length": 5},
        "validation": {"batch_size": 8},
        **changes,
    }


def translation_recipe(**changes: Any) -> TranslationRecipe:
    return from_mapping(TranslationRecipe, translation_mapping(**changes), "recipe")


def save_encoder(folder: Path) -> str:
    path = folder / "encoder.safetensors"
    save_file(VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05)).state_dict(), path)
    return str(path)


class DrawnRows(Rows):
    readable: ClassVar[list[int]] = []

    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        return torch.rand(len(rows), 1, 2, generator=generator)[part], None


def write_config(folder: Path, config: Config) -> str:
    path = folder / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML.
    return str(path)


def start(*arguments: str, processes: int = 0) -> subprocess.Popen[str]:
    """Start `captioner` on CPUs, by torchrun if by processes."""
    path = str(Path(captioner.__file__).parents[1])
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    command = [*(launcher if processes else []), "captioner", *arguments[:2], "--device", "cpu"]
    return subprocess.Popen(
        [sys.executable, "-m", *command, *arguments[2:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def assert_same_tensors(found: Path, expected: Path, name: str = "last.safetensors") -> None:
    """A file of two runs, bit for bit."""
    ours, theirs = load_file(found / name), load_file(expected / name)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def assert_resumes(
    recipe: Recipe, folder: Path, between: Callable[[], object] = lambda: None
) -> None:
    whole, split = folder / "whole", folder / "split"
    train_run(recipe, whole)
    train_run(recipe.replace(training=recipe.training.replace(epochs=1)), split)
    between()
    train_run(recipe, split, resume=True)
    for name in ("last.safetensors", "model/model.safetensors"):
        assert_same_tensors(split, whole, name)
    assert log_of(split) == log_of(whole)


def whole_batches(data: Batches[Any, Any], epoch: int, first: int = 0) -> list[Any]:
    """The batches of an epoch from number `first` on, as one process has them."""
    return [batch for (batch,) in data.batches(epoch, first)]
