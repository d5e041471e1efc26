"""`training.compile`: torch's compiler takes from ten seconds to minutes here."""

import os
from pathlib import Path
from typing import Any

import pytest
from run_samples import Config, log_of, luong, recipe_of, translation_recipe
from samples import Patch

from captioner import cpu
from captioner.runs.run import Recipe, train_run

pytestmark = pytest.mark.slow
compiles = pytest.mark.skipif(
    os.environ.get("ATEN_CPU_CAPABILITY") == "default",
    reason="what torch's compiler writes does not compile with ATEN_CPU_CAPABILITY=default",
)

LAYERS = {"embedding_size": 8, "heads": 2, "inner_size": 8, "dropout": 0.0}
TRANSLATORS: list[dict[str, Any]] = [
    luong(dropout=0.0),
    {"transformer": {**LAYERS, "encoder_layers": 1, "decoder_layers": 1}},
]
DECODERS: list[dict[str, Any]] = [
    {"embedding_size": 8, "hidden_size": 8, "attention_size": 8, "dropout": 0.0},
    {**LAYERS, "kind": "transformer", "layers": 1},
]


def check_equal_training(plain: Recipe, folder: Path) -> None:
    """Train with and without the compiler, and compare the loss and gradient of the first epoch.

    Adam makes rounding larger from step to step.
    """
    compiled = plain.replace(training=plain.training.replace(compile=True))
    train_run(plain, folder / "plain")
    train_run(compiled, folder / "compiled")
    expected, found = (log_of(folder / name)[0] for name in ("plain", "compiled"))
    for name in ("train_loss", "train_gradient_norm"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4)


@compiles
@pytest.mark.parametrize("model", TRANSLATORS, ids=str)
def test_a_translator_trains_as_without_the_compiler(model: Config, tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    check_equal_training(translation_recipe(model=model, training={"epochs": 1}), tmp_path)


@compiles
@pytest.mark.parametrize("decoder", DECODERS, ids=str)
def test_a_captioner_trains_as_without_the_compiler(
    decoder: Config, config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv(cpu.SWITCH, "0")  # The LSTM's code for CPUs is not compiled.
    changes = {"encoder": {"train": True}, "training": {"epochs": 1}}
    check_equal_training(recipe_of({**config, "decoder": decoder}, **changes), tmp_path)
