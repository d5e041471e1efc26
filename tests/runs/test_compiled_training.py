"""`training.compile`: torch's compiler takes from ten seconds to minutes here."""

import os
from pathlib import Path

import pytest
from run_samples import Config, log_of, luong, recipe_of, translation_recipe
from samples import Patch

from captioner import cpu
from captioner.runs.run import train_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("ATEN_CPU_CAPABILITY") == "default",
        reason="what torch's compiler writes does not compile with ATEN_CPU_CAPABILITY=default",
    ),
]

LAYERS = {"embedding_size": 8, "heads": 2, "inner_size": 8, "dropout": 0.0}
CHANGES: list[Config] = [
    {"model": luong(dropout=0.0)},
    {"decoder": {**LAYERS, "kind": "transformer", "layers": 1}},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_run_is_the_one_without_the_compiler(
    changes: Config, config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    """In the loss and gradient of the first epoch: Adam makes rounding larger."""
    monkeypatch.setenv(cpu.SWITCH, "0")  # The LSTM's code for CPUs is not compiled.
    for compiled in (False, True):
        training = {"epochs": 1, "compile": compiled}
        if "model" in changes:
            pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
            recipe = translation_recipe(**changes, training=training)
        else:
            base = {**config, "decoder": {}}
            recipe = recipe_of(base, **changes, encoder={"train": True}, training=training)
        train_run(recipe, tmp_path / str(compiled))
    expected, found = (log_of(tmp_path / name)[0] for name in ("False", "True"))
    for name in ("train_loss", "train_gradient_norm"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4)
