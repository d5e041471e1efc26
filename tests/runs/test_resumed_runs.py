"""A run that stops and goes on is the run in one go; one that cannot go on is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from run_samples import (
    Config,
    DrawnRows,
    assert_same_tensors,
    log_of,
    merged,
    recipe_of,
    whole_batches,
)
from samples import Output, Patch

from captioner.errors import UserError
from captioner.runs.batches import CaptionBatches
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run
from captioner.training import Interrupted
from captioner.training.log import RunLog

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
    ids=["plain", "changed photos", "standardised", "averages", "hard in parts", "self-critical"],
)
def test_a_run_split_in_two_equals_one_in_one_go(
    config: Config, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Every draw, every average and the model of the best epoch are what they would have been."""
    whole, split = tmp_path / "whole", tmp_path / "split"
    once = {**changes.get("training", {}), "epochs": 1}
    train_run(recipe_of(config, **changes), whole)
    train_run(recipe_of(config, **{**changes, "training": once}), split)
    train_run(recipe_of(config, **changes), split, resume=True)
    assert_same_tensors(split, whole)
    assert_same_tensors(split, whole, "model/model.safetensors")
    assert log_of(split) == log_of(whole)


def test_the_best_model_of_a_run_that_was_stopped_has_a_card(
    config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    def stop(*_: object) -> None:
        raise Interrupted("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "write", stop)
        with pytest.raises(Interrupted):
            train_run(recipe_of(config), tmp_path)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "in validation, after epoch 1 of a training that had not ended." in card
    assert "training: 6 photos" in card
    train_run(recipe_of(config), tmp_path, resume=True)
    assert " of 2 epochs." in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_a_run_goes_on_with_the_config_in_its_folder(
    config: Config, tmp_path: Path, capsys: Output
) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path, resume=True)
    assert f"nothing to resume in {tmp_path} yet; training starts\n" in capsys.readouterr().out
    step = log_of(tmp_path)[-1]["step"]
    train_run(read_any_recipe(tmp_path / "config.json", ["training.epochs=2"]), tmp_path, True)
    assert f"\ngoing on after step {step} (epoch 1)\n" in capsys.readouterr().out


@pytest.mark.parametrize("freeze", [True, False])
def test_a_resumed_run_has_its_word_vectors_without_their_file(
    config: Config, tmp_path: Path, freeze: bool
) -> None:
    file, split = tmp_path / "vectors.txt", tmp_path / "split"
    file.write_text("photo " + "7 " * 8 + "\n")
    vectors = {"word_vectors": {"file": str(file), "freeze": freeze}}
    train_run(recipe_of(config, **vectors), tmp_path / "whole")
    train_run(recipe_of(config, **vectors, training={"epochs": 1}), split)
    file.unlink()
    train_run(recipe_of(config, **vectors), split, resume=True)
    assert_same_tensors(split, tmp_path / "whole")
    with pytest.raises(UserError, match="cannot be read"):
        train_run(recipe_of(config, **vectors), tmp_path / "other", resume=True)


def test_hard_attention_starts_from_soft_and_is_resumed_without_it(
    config: Config, tmp_path: Path
) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "soft")
    hard = {**HARD, "start_from": str(tmp_path / "soft")}
    train_run(recipe_of(config, **hard), tmp_path / "whole")
    train_run(recipe_of(config, **hard, training={"epochs": 1}), tmp_path / "split")
    shutil.rmtree(tmp_path / "soft")
    train_run(recipe_of(config, **hard), tmp_path / "split", resume=True)
    assert_same_tensors(tmp_path / "split", tmp_path / "whole")


def test_batches_of_a_resumed_epoch_are_those_of_a_whole_one(config: Config) -> None:
    examples = [(row % 6, [4, 5]) for row in range(14)]
    batches = CaptionBatches(examples, DrawnRows(), recipe_of(config))
    whole = whole_batches(batches, 3)
    assert len(whole) == batches.steps(3) == 4
    for resumed, original in zip(whole_batches(batches, 3, 2), whole[2:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(resumed[:4], original[:4], strict=True))
        assert resumed.seed == original.seed
    seeds = [batch.seed for epoch in range(3) for batch in whole_batches(batches, epoch)]
    assert len(set(seeds)) == len(seeds)
    assert any(
        not torch.equal(a.source, b.source)
        for a, b in zip(whole, whole_batches(batches, 4), strict=True)
    )


def test_a_run_is_not_resumed_with_another_config(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "run")
    before = (tmp_path / "run" / "config.json").read_bytes()
    for section, field, value in (
        ("training", "batch_size", 2),
        ("search", "beam", 1),
        ("features", "mirror", True),
    ):
        recipe = recipe_of(config, **{section: {field: value}})
        with pytest.raises(UserError, match=rf"made with {section}.{field} .*, not {value!r}; "):
            train_run(recipe, tmp_path / "run", resume=True)
        assert (tmp_path / "run" / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "follower"),
    [
        ({"training": {"schedule": "cosine"}}, "the schedule cosine"),
        ({"objective": {"scheduled_sampling": 0.5}}, "scheduled sampling"),
    ],
)
def test_a_run_whose_training_follows_its_epochs_is_not_made_longer(
    config: Config, tmp_path: Path, changes: Config, follower: str
) -> None:
    shorter = merged(config, **changes)
    train_run(recipe_of(shorter, training={"epochs": 1}), tmp_path / "run")
    with pytest.raises(UserError, match=rf"training\.epochs 1, not 2, which {follower} follows"):
        train_run(recipe_of(shorter), tmp_path / "run", resume=True)


def test_what_does_not_change_the_run_may_change_on_resume(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "run")
    changed = recipe_of(
        config,
        training={"epochs": 2, "patience": 9, "checkpoint_seconds": 1.0},
        validation={"batch_size": 1},
        features={"batch_size": 3, "folder": str(tmp_path / "elsewhere")},
    )
    train_run(changed, tmp_path / "run", resume=True)
    kept = json.loads((tmp_path / "run" / "config.json").read_text())
    assert kept["training"]["patience"] == 9


def test_a_refused_resume_changes_nothing(config: Config, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(recipe_of(config, training={"epochs": 1}), run)
    checkpoint = run / "last.safetensors"
    records = [run / "config.json", run / "environment.json"]
    before = [path.read_bytes() for path in records]

    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"last\.safetensors cannot be read"):
        train_run(recipe_of(config), run, resume=True)
    assert [path.read_bytes() for path in records] == before
