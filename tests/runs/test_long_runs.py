"""Whole runs that are killed, divided among processes, begun from others, watched."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from run_samples import (
    SMALL,
    Config,
    assert_same_tensors,
    ended,
    log_of,
    make_table,
    merged,
    recipe_of,
    start,
    write_config,
)
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from samples import Patch

import captioner
from captioner.caption import load_model
from captioner.errors import UserError
from captioner.runs.batches import CaptionBatches
from captioner.runs.features import StoredRows
from captioner.runs.run import train_run
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter

# Two processes.


@pytest.mark.slow
def test_two_processes_of_the_command_line(tmp_path: Path) -> None:
    """Batches of 3, 3, 3 and 1; three photos to validate on, in batches of 2 and 1."""
    # Adam would blow rounding up where a gradient is next to nothing.
    rmsprop = {"epochs": 3, "batch_size": 3, "optimizer": "rmsprop", "learning_rate": 0.005}
    config = merged(
        {**SMALL, "data": make_table(tmp_path, training=5)},
        decoder={"dropout": 0.0},
        features={"mirror": True},
        training=rmsprop,
        validation={"batch_size": 2},
    )
    path, out = write_config(tmp_path, config), str(tmp_path / "two")
    code, output, errors = ended(start("train", path, "--out", out, processes=2))
    assert code == 0, errors[-3000:]
    assert output.count("training: 5 photos") == 1
    assert output.count("the best model, of epoch") == 1
    results = json.loads((tmp_path / "two" / "results.json").read_text())
    assert [each["image_id"] for each in results] == ["5.png", "6.png", "7.png"]
    (record,) = json.loads((tmp_path / "two" / "environment.json").read_text())
    assert record["processes"] == 2
    two = load_file(tmp_path / "two" / "last.safetensors")
    train_run(recipe_of(config), tmp_path / "one")
    one = load_file(tmp_path / "one" / "last.safetensors")
    for name in (name for name in one if name.startswith("model.")):
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-6)
    for found, expected in zip(log_of(tmp_path / "two"), log_of(tmp_path / "one"), strict=True):
        scores = [name for name in expected if not name.startswith("train_")]
        assert {name: found[name] for name in scores} == {n: expected[n] for n in scores}
        assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-4)
    assert results == json.loads((tmp_path / "one" / "results.json").read_text())


def test_every_example_is_in_one_share(config: Config, tmp_path: Path) -> None:
    names = [str(row) for row in range(10)]
    record = StoreRecord(encoder={}, preprocessing={}, images=names, shape=(1, 1), mirrored=True)
    with StoreWriter(tmp_path / "store", record) as writer:
        writer.write(range(20), torch.arange(20.0).view(20, 1, 1))  # The number of each row.
    numbers = StoredRows(FeatureStore(tmp_path / "store"))
    examples = [(row, [4 + row % 3] * (1 + row % 4)) for row in range(10)]
    batches = CaptionBatches(examples, numbers, recipe_of(config))
    whole = list(batches.batches(0, 0, 0, 1, 1))
    assert [step.examples for step in whole] == [
        len(step.micro_batches[0].batch.inputs) for step in whole
    ]
    for processes, parts in ((2, 1), (2, 2), (5, 1)):
        shares = [list(batches.batches(0, 0, rank, processes, parts)) for rank in range(processes)]
        for number, step in enumerate(whole):
            mine = [share[number] for share in shares]
            assert {each.examples for each in mine} == {step.examples}
            assert {len(each.micro_batches) for each in mine} == {parts}
            given = [part for each in mine for part in each.micro_batches]
            sizes = [part.examples for part in given]
            assert sum(sizes) == step.examples
            assert max(sizes) - min(sizes) <= 1
            for part in given:
                assert bool(part.batch.mask.any()) == (part.examples > 0)
            rows = [row for part in given if part.examples for row in part.batch.source.flatten()]
            assert sorted(map(int, rows)) == sorted(
                map(int, step.micro_batches[0].batch.source.flatten())
            )
            assert len({part.batch.seed for part in given}) == len(given)


# Killed, and what is gone.


def position_of(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:
            found: dict[str, Any] = json.loads(file.metadata()["position"])
            return found
    except (SafetensorError, OSError, RuntimeError):  # It is replaced amid reading.
        return {"step": 0, "epoch": 0}


@pytest.mark.slow
def test_a_run_of_the_command_line_that_was_killed(config: Config, tmp_path: Path) -> None:
    """`kill -9` somewhere amid training, then --resume: bit for bit the run that was not killed."""
    training = {"epochs": 12, "patience": 0, "checkpoint_seconds": 0.0}
    dropped = merged(config, training=training, decoder={"dropout": 0.3})
    command = ["train", write_config(tmp_path, dropped), "--out"]
    process = start(*command, str(tmp_path / "killed"))
    checkpoint = tmp_path / "killed" / "last.safetensors"
    while position_of(checkpoint)["step"] < 6 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert ended(process)[0] == -signal.SIGKILL
    assert position_of(checkpoint)["epoch"] < 12
    # With the same number of threads, on which the order of sums depends.
    assert ended(start(*command, str(tmp_path / "killed"), "--resume"))[0] == 0
    assert ended(start(*command, str(tmp_path / "whole")))[0] == 0
    for name in ("last.safetensors", "model/model.safetensors"):
        assert_same_tensors(tmp_path / "killed", tmp_path / "whole", name)
    for name in ("log.jsonl", "results.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# What is kept.


def test_a_run_says_what_it_was_made_with(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "run")
    train_run(recipe_of(config, training={"epochs": 2}), tmp_path / "run", resume=True)
    first, second = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert first == second
    assert first["captioner"] == captioner.__version__
    assert first["torch"] == torch.__version__
    assert (first["seed"], first["processes"], first["device"]) == (0, 1, "cpu")
    words = json.loads((tmp_path / "run" / "vocabulary.json").read_text())
    assert words == json.loads((tmp_path / "run" / "model" / "vocabulary.json").read_text())


def test_the_averaged_weights_are_judged_and_kept(config: Config, tmp_path: Path) -> None:
    recipe = recipe_of(config, training={"epochs": 1, "average": 0.9})
    train_run(recipe, tmp_path / "run")
    last = load_file(tmp_path / "run" / "last.safetensors")
    kept = load_file(tmp_path / "run" / "model" / "model.safetensors")
    name = "decoder.embedding.weight"
    assert torch.equal(kept[name], last[f"average.{name}"].half())
    assert not torch.equal(kept[name], last[f"model.{name}"].half())


@pytest.mark.slow
def test_tensorboard_gets_scalars_captions_and_pictures(config: Config, tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    once = recipe_of(config, training={"tensorboard": True, "epochs": 1})
    train_run(once, tmp_path / "run")
    twice = recipe_of(config, training={"tensorboard": True, "epochs": 2})
    train_run(twice, tmp_path / "run", resume=True)
    found = reading.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    found.Reload()
    log = log_of(tmp_path / "run")
    for name in ("train_loss", "CIDEr-D", "learning_rate"):
        scalars = [(each.step, each.value) for each in found.Scalars(name)]
        assert scalars == [(each["step"], pytest.approx(each[name], rel=1e-5)) for each in log]
    assert set(found.Tags()["images"]) == {f"photo {number}.png" for number in (6, 7)}
    (text, _) = found.Tensors("photo 6.png/text_summary")
    assert b"photo of the number 6" in text.tensor_proto.string_val[0]
    # It changes nothing of the run itself.
    train_run(recipe_of(config, training={"epochs": 2}), tmp_path / "plain")
    assert_same_tensors(tmp_path / "run", tmp_path / "plain")


# Begun from another run.


def test_a_run_starts_from_a_model(config: Config, tmp_path: Path) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "first")
    trained = load_file(tmp_path / "first" / "last.safetensors")
    still = {"epochs": 1, "learning_rate": 1e-12, "seed": 0}
    # Its words as well, whatever this recipe would count.
    changes = {"start_from": str(tmp_path / "first"), "minimum_count": 3, "training": still}
    folder = train_run(recipe_of(config, **changes), tmp_path / "second")
    found = load_file(tmp_path / "second" / "last.safetensors")
    name = "model.decoder.embedding.weight"
    torch.testing.assert_close(found[name], trained[name], rtol=1e-3, atol=1e-7)
    assert load_model(folder).vocabulary == load_model(tmp_path / "first" / "model").vocabulary


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decoder": {"hidden_size": 9}}, r"does not fit this decoder: tensor .* not "),
        ({"decoder": {"gate": "none"}}, "does not fit this decoder: tensor .* (missing|belong)"),
        ({"training": {"seed": 3}}, "was trained on another encoder than this recipe's: tensor"),
        ({"encoder": {"weights": "gone.pth"}}, "weights file gone.pth does not exist"),
        ({"preprocessing": {"size": 8}}, "preprocessing size 8 is too small"),
        ({"start_from": "nowhere"}, "model 'nowhere' is neither a folder nor one of the"),
    ],
)
def test_a_start_that_does_not_fit(
    config: Config, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    train_run(recipe_of(config, training={"epochs": 1}), tmp_path / "first")
    changes = {"start_from": str(tmp_path / "first" / "model"), **changes}
    with pytest.raises(UserError, match=sentence):
        train_run(recipe_of(config, **changes), tmp_path / "second")
    assert not (tmp_path / "second").exists()


# What is no number.

LOST = {
    "hard": {
        "decoder": {"selection": "hard"},
        "objective": {"doubly_stochastic": 0.0},
        "training": {"learning_rate": 1e38},
    },
    "scheduled": {"objective": {"scheduled_sampling": 1.0}, "training": {"learning_rate": 1e30}},
}
SENTENCE = r"(too large for one,|gradient nan) at step \d, in epoch 1: lower learning_rate"


@pytest.mark.parametrize("name", LOST)
def test_a_draw_from_what_is_no_number_is_a_sentence(
    config: Config, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UserError, match=SENTENCE):
        train_run(recipe_of(config, **LOST[name]), tmp_path / "run")
    assert not (tmp_path / "run" / "last.safetensors").exists()


# What a run does not go on with leaves no trace.


def test_a_missing_tensorboard_is_said_before_any_work(
    config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"package tensorboard: pip install .captioner\[tens"):
        train_run(recipe_of(config, training={"tensorboard": True}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
