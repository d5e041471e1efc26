"""The training loop: stopped anywhere and resumed, it ends where it would have ended."""

import math
import signal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from samples import Output, log_of
from training_samples import (
    ALL_STEPS,
    EPOCHS,
    STEPS,
    Data,
    Validator,
    at,
    content_of,
    interrupt,
    make_model,
    raising,
    run,
    spoiled,
)

from captioner.errors import UserError
from captioner.training.checkpoint import Position
from captioner.training.loop import Interrupted
from captioner.training.run_log import RunLog


def assert_same_run(found: Path, expected: Path) -> None:
    (position, tensors), (expected_position, expected_tensors) = map(content_of, (found, expected))
    assert position == expected_position
    torch.testing.assert_close(tensors, expected_tensors, rtol=0, atol=0)
    assert log_of(found) == log_of(expected)
    assert sorted(path.name for path in found.iterdir()) == ["last.safetensors", "log.jsonl"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


def test_a_run_learns_is_logged_and_says_where_it_ended(tmp_path: Path, capsys: Output) -> None:
    data = Data()
    _, _, position = run(tmp_path, data)
    assert (position.epoch, position.step_in_epoch, position.step) == (EPOCHS, 0, EPOCHS * STEPS)
    assert data.given == ALL_STEPS
    log = log_of(tmp_path)
    assert [record["epoch"] for record in log] == [1, 2, 3]
    assert [record["step"] for record in log] == [4, 8, 12]
    assert [score for score, _ in position.scores] == [record["score"] for record in log]
    assert log[-1]["train_loss"] < log[0]["train_loss"] / 2
    for record in log:
        assert record["train_doubled"] == pytest.approx(2 * record["train_loss"])
        assert record["other"] == 1.0
        assert record["train_gradient_norm"] > 0
    assert capsys.readouterr().err.endswith(f", loss {log[-1]['train_loss']:.3f}\n")


@pytest.mark.parametrize("moment", ALL_STEPS)
def test_a_signal_at_any_step(
    whole: Path, tmp_path: Path, moment: tuple[int, int], capsys: Output
) -> None:
    number = ALL_STEPS.index(moment) + 1
    kinds = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(each) for each in kinds]
    first = Data(at(*moment, partial(signal.raise_signal, kinds[number % 2])))
    with pytest.raises(Interrupted, match=f"stopped after step {number}; .*--resume"):
        run(tmp_path, first)
    assert [signal.getsignal(each) for each in kinds] == handlers
    second = Data()
    run(tmp_path, second, resume=True)
    said = f"going on after step {number} (epoch {moment[0] + 1})"
    assert said in capsys.readouterr().out.splitlines()
    assert_same_run(tmp_path, whole)
    assert first.given + second.given == ALL_STEPS  # No step is made twice.


@pytest.mark.parametrize("moment", ALL_STEPS)
@pytest.mark.parametrize("checkpoint_seconds", [300.0, 0.0])
def test_an_error_at_any_step(
    whole: Path, tmp_path: Path, moment: tuple[int, int], checkpoint_seconds: float
) -> None:
    failing = Data(at(*moment, raising(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, failing, checkpoint_seconds=checkpoint_seconds)
    data = Data()
    run(tmp_path, data, resume=True)
    # From the step that failed, or from the epoch's first.
    assert data.given[0] == (moment if checkpoint_seconds == 0.0 else (moment[0], 0))
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_a_failing_validation_loses_nothing(whole: Path, tmp_path: Path, epoch: int) -> None:
    class Failing(Validator):
        def run(self) -> dict[str, float]:
            scores = super().run()
            return raising(UserError("no room"))() if self.runs == epoch else scores

    model = make_model()
    with pytest.raises(UserError, match="no room"):
        run(tmp_path, model=model, validator=Failing(model))
    data = Data()
    run(tmp_path, data, resume=True)
    assert data.given == ALL_STEPS[epoch * STEPS :]
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"precision": "bfloat16"}, 1),
        ({"precision": "float16"}, 1),
        ({"optimizer": "rmsprop", "average": 0.5}, 1),
        ({"schedule": "cosine"}, STEPS - 1),  # The rate is logged after the stop.
    ],
)
def test_a_stopped_run_resumes_to_the_same_numbers_with_any_setting(
    tmp_path: Path, options: dict[str, Any], step: int
) -> None:
    run(tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        run(tmp_path / "stopped", Data(at(1, step, interrupt)), **options)
    run(tmp_path / "stopped", resume=True, **options)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


@pytest.mark.parametrize("factor", [math.nan, math.inf])
@pytest.mark.parametrize("clip_norm", [0.0, 5.0])
def test_a_gradient_that_is_no_number_stops_the_run_and_changes_no_weight(
    whole: Path, tmp_path: Path, factor: float, clip_norm: float
) -> None:
    failing = spoiled(lambda loss: loss * factor)
    with pytest.raises(UserError, match=r"gradient is (nan|inf) at step 6, in epoch 2: lower"):
        run(tmp_path, **failing, clip_norm=clip_norm)
    expected = make_model()
    with pytest.raises(Interrupted):
        run(tmp_path / "sound", Data(at(1, 0, interrupt)), model=expected, clip_norm=clip_norm)
    found = [*failing["model"].parameters()]
    torch.testing.assert_close(found, [*expected.parameters()], rtol=0, atol=0)


def test_runs_that_cannot_train_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):  # A second signal ends a run at once.
        run(tmp_path, Data(lambda *_: (interrupt(), interrupt())))
    no_number = "the validation's score 'score' or perplexity is not a number"
    with pytest.raises(UserError, match=no_number):
        validated(tmp_path, [1.0, math.nan])
    with pytest.raises(UserError, match=no_number):
        validated(tmp_path / "other", [1.0, 2.0], [3.0, math.nan])
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'average\.layers"):
        run(tmp_path, resume=True, average=0.5)  # Its checkpoint has no averages.
    with pytest.raises(UserError, match="nothing to train on"):
        run(tmp_path, MagicMock())  # Of length 0.
    (tmp_path / "full" / "log.jsonl").mkdir(parents=True)
    with pytest.raises(UserError, match=r"log\.jsonl: it is a folder"):
        run(tmp_path / "full")


def validated(
    folder: Path, scores: list[float], perplexities: list[float] | None = None, **options: Any
) -> tuple[Validator, Position]:
    model = make_model()
    validator = Validator(model, scores, perplexities=perplexities)
    _, _, position = run(folder, model=model, validator=validator, **options)
    return validator, position


def test_early_stopping_on_the_validation_score(tmp_path: Path) -> None:
    validator, position = validated(tmp_path, [1, 3, 2, 3, 9], epochs=9, patience=2)
    assert position.epoch == 4
    scores = [score for score, _ in position.scores]
    assert scores == [1, 3, 2, 3]  # as good as the best is not better
    assert validator.kept == [1, 3]
    # Neither does a resumed run go on.
    data = Data()
    run(tmp_path, data, resume=True, epochs=9, patience=2)
    assert data.given == []
    assert validated(tmp_path, [3, 2, 1, 0, -1], epochs=5, patience=0)[1].epoch == 5


def test_the_lower_perplexity_decides_ties(tmp_path: Path) -> None:
    options = {"epochs": 9, "patience": 2, "learning_rate": 0.08, "decay_patience": 2}
    perplexities = [238.0, 90.0, 120.0, 70.0, 70.0, 71.0]
    validator, position = validated(tmp_path, [0.0] * 6, perplexities, **options)
    assert validator.kept_epochs == [1, 2, 4]
    assert position.epoch == 6  # A lower perplexity is progress; the same is none.
    rates = [record["learning_rate"] for record in log_of(tmp_path)]
    assert rates == pytest.approx([0.08] * 6)
    # A better score decides alone.
    validator, _ = validated(tmp_path / "other", [1.0, 2.0, 1.0], [5.0, 9.0, 1.0])
    assert validator.kept_epochs == [1, 2]


def test_validation_every_so_many_epochs_and_after_the_last(tmp_path: Path) -> None:
    options = {"decay_patience": 1, "decay_factor": 0.5, "learning_rate": 0.08}
    validated(tmp_path, [1, 0, 3], epochs=6, validate_every=2, **options)
    log = log_of(tmp_path)
    assert [record.get("score") for record in log] == [None, 1, None, 0, None, 3]
    rates = [record["learning_rate"] for record in log]
    assert rates == pytest.approx([0.08, 0.08, 0.08, 0.08, 0.04, 0.04])


@pytest.mark.parametrize("cut_off", ["", '{"step": 2, "lo', "{}", "[3]", '{"step": "x"}', "\n\n"])
def test_a_resumed_run_keeps_records_but_one_cut_off(tmp_path: Path, cut_off: str) -> None:
    for resume_at, kept in ((0, 0), (9, 0), (10, 1), (25, 2), (30, 3)):
        run_log = RunLog(tmp_path)
        for step in (10, 20, 30):
            run_log.write({"step": step, "note": "é\u2028\n"})
        with (tmp_path / "log.jsonl").open("a") as file:
            file.write(cut_off)
        RunLog(tmp_path, resume_at).write({"step": 31})
        assert [each["step"] for each in log_of(tmp_path)] == [*[10, 20, 30][:kept], 31]
    (tmp_path / "log.jsonl").unlink()
    RunLog(tmp_path, 5).write({"step": 6})  # Without a log, one begins.
    assert [each["step"] for each in log_of(tmp_path)] == [6]
