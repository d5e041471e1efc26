"""A run that stops, is killed, divided or compiled is the run in one go."""

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_commands import forked_commands
from run_samples import (
    SMALL,
    Config,
    assert_resumes,
    assert_same_tensors,
    ended,
    make_table,
    merged,
    recipe_of,
    start,
    write_config,
)
from samples import Output, log_of

import captioner
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run

WEIGHTS_FILES = ("last.safetensors", "model/model.safetensors")
HARD = {"decoder": {"selection": "hard"}, "objective": {"doubly_stochastic": 0.0}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"encoder": {"train": True}, "augmentation": {"crop": 0.4, "mirror": True, "colour": 0.3}},
        {"decoder": {"standardise": True}},
        {"training": {"average": 0.9}},
        {**HARD, "training": {"accumulate": 2}},
        {"objective": {"self_critical": {"samples": 3, "maximum_length": 6}}},
    ],
    ids=str,
)
def test_a_split_run_is_the_whole(config: Config, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert_resumes(recipe_of(config, **changes), tmp_path)


def test_a_run_goes_on_with_the_config_in_its_folder_and_what_may_change(
    config: Config, tmp_path: Path, capsys: Output
) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "run", resume=True)
    said = f"nothing to resume in {tmp_path / 'run'} yet; training starts\n"
    assert said in capsys.readouterr().out
    step = log_of(tmp_path / "run")[-1]["step"]
    changes = ["training.epochs=2", "training.patience=9", "training.checkpoint_seconds=1"]
    changes += ["validation.batch_size=1", f"features.folder={tmp_path / 'elsewhere'}"]
    train_run(read_any_recipe(tmp_path / "run" / "config.json", changes), tmp_path / "run", True)
    assert f"\ngoing on after step {step} (epoch 1)\n" in capsys.readouterr().out
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["training"]["patience"] == 9
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert f"captioner {captioner.__version__}, torch {torch.__version__}" in card
    shutil.rmtree(tmp_path / "photos")  # Of a finished run nothing is read.
    train_run(read_any_recipe(tmp_path / "run" / "config.json", []), tmp_path / "run", True)
    assert "is trained to its end; to go on, raise training.epochs" in capsys.readouterr().out


@pytest.mark.slow
def test_two_processes_of_the_command_line(tmp_path: Path) -> None:
    """Batches of 3, 3, 3 and 1; three photos to validate on, in batches of 2 and 1."""
    # Adam would blow rounding up where a gradient is next to nothing.
    rmsprop = {"epochs": 3, "batch_size": 3, "optimizer": "rmsprop", "learning_rate": 0.005}
    changes = {"features": {"mirror": True}, "training": rmsprop, "validation": {"batch_size": 2}}
    small = {**SMALL, "data": make_table(tmp_path, training=5)}
    config = merged(small, decoder={"dropout": 0.0}, **changes)
    path, out = write_config(tmp_path, config), str(tmp_path / "two")
    code, output, errors = ended(start("train", path, "--out", out, processes=2))
    assert code == 0, errors[-3000:]
    assert output.count("training: 5 photos") == 1
    assert output.count("the best model, of epoch") == 1
    train_run(recipe_of(config), tmp_path / "one")
    for found, expected in zip(log_of(tmp_path / "two"), log_of(tmp_path / "one"), strict=True):
        means = [name for name in expected if name in ("cross_entropy", "perplexity", "train_loss")]
        scores = [name for name in expected if not name.startswith("train_") and name not in means]
        assert {name: found[name] for name in scores} == {n: expected[n] for n in scores}
        for name in means:
            assert found[name] == pytest.approx(expected[name], rel=1e-4)
    results = [(tmp_path / name / "results.json").read_text() for name in ("one", "two")]
    assert results[0] == results[1]


@pytest.mark.slow
def test_25_kills_change_no_byte_of_a_run(config: Config, tmp_path: Path) -> None:
    training = {"epochs": 6, "patience": 0, "checkpoint_seconds": 0.0}
    dropped = merged(config, training=training, decoder={"dropout": 0.3})
    path, run = write_config(tmp_path, dropped), tmp_path / "run"
    first = tmp_path / "first"

    def check() -> None:
        if not first.exists():
            run.rename(first)
            return
        for name in WEIGHTS_FILES:
            assert_same_tensors(run, first, name)
        assert log_of(run) == log_of(first)
        assert (run / "results.json").read_bytes() == (first / "results.json").read_bytes()
        modes = {stat.S_IMODE((run / name).stat().st_mode) for name in WEIGHTS_FILES}
        assert modes == {stat.S_IMODE((run / "log.jsonl").stat().st_mode)}
        names = [path.relative_to(run) for path in run.rglob("*")]
        assert {path.relative_to(first) for path in first.rglob("*")} >= set(names)
        shutil.rmtree(run)

    with forked_commands(tmp_path) as commands:
        commands.kill(25, ["train", path, "--out", "run", "--device", "cpu", "--resume"], check)


@pytest.mark.slow
def test_tensorboard_gets_scalars_and_pictures(config: Config, tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for epochs in (1, 2):
        recipe = recipe_of(config, training={"tensorboard": True, "epochs": epochs})
        train_run(recipe, tmp_path / "run", resume=epochs == 2)
    found = reading.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    log = log_of(tmp_path / "run")
    for name in ("train_loss", "CIDEr-D", "learning_rate"):
        scalars = [(each.step, each.value) for each in found.Scalars(name)]
        assert scalars == [(each["step"], pytest.approx(each[name], rel=1e-5)) for each in log]
    assert found.Tags()["images"]
    for tag in found.Tags()["images"]:  # The same photos each epoch, panels of their maps.
        assert tag in ("photos/6.png", "photos/7.png")
        pictures = found.Images(tag)
        assert [each.step for each in pictures] == [each["step"] for each in log]
