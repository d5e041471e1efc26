"""The training loop: stopped anywhere and resumed, it ends where it would have ended."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

from captioner.errors import UserError
from captioner.training import (
    Interrupted,
    Part,
    Step,
    TrainingConfig,
    Validation,
    make_optimizer,
    train,
)
from captioner.training import training_loop as loop_module
from captioner.training.checkpoint import Position, save_checkpoint

EPOCHS, STEPS = 3, 4


class Batch(NamedTuple):
    inputs: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(self.inputs.to(device), self.targets.to(device))


class Model(nn.Module):
    """Two layers with dropout and batch normalisation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1)
        )
        self.extra: Callable[[], Tensor | float] = lambda: 0.0

    def linear(self, index: int) -> nn.Linear:
        layer = self.layers[index]
        assert isinstance(layer, nn.Linear)
        return layer

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        assert self.training
        assert torch.is_grad_enabled()
        error = functional.mse_loss(self.layers(batch.inputs), batch.targets)
        return {"loss": error + self.extra(), "half": error.detach() / 2}


class Data:
    """Batches that depend on their number alone. `before` is called before each is given."""

    unit = "examples"

    def __init__(self, before: Callable[[int, int], None] | None = None) -> None:
        self.before = before
        self.given: list[tuple[int, int]] = []

    def steps(self, epoch: int) -> int:
        return STEPS

    def shares(
        self, epoch: int, first: int, rank: int, processes: int, parts: int
    ) -> Generator[Step, None, None]:
        for number in range(first, STEPS):
            if self.before is not None:
                self.before(epoch, number)
            self.given.append((epoch, number))
            generator = torch.Generator().manual_seed(100 * epoch + number)
            inputs = torch.randn(16, 3, generator=generator)
            batch = Batch(inputs, inputs.sum(dim=1, keepdim=True))
            yield Step([Part(batch, len(inputs))], len(inputs))


def config(**options: Any) -> TrainingConfig:
    settings = {"epochs": EPOCHS, "learning_rate": 0.05, "schedule": "plateau", "decay_patience": 1}
    return TrainingConfig(**{**settings, **options})


class Validator:
    """Scores a model by its error on ten examples; counts and keeps what it is asked to."""

    def __init__(self, model: nn.Module, scripted: list[float] | None = None) -> None:
        self.model, self.scripted = model, scripted
        self.kept: list[dict[str, float]] = []
        self.runs = 0

    def run(self) -> dict[str, float]:
        assert not self.model.training
        assert not torch.is_grad_enabled()
        self.runs += 1
        if self.scripted is not None:
            return {"score": self.scripted[self.runs - 1]}
        inputs = torch.randn(10, 3)  # From torch's own generator: its state must come back too.
        error = self.model.layers(inputs) - inputs.sum(dim=1, keepdim=True)
        return {"score": -float(error.square().mean()), "other": 1.0}

    def validation(self) -> Validation:
        return Validation(self.run, "score", self.kept.append)


def run(
    folder: Path, data: Data | None = None, resume: bool = False, **options: Any
) -> tuple[Model, Position]:
    """Train a new model, as a command that is started would."""
    torch.manual_seed(0)
    model = Model()
    data = Data() if data is None else data
    validator = Validator(model).validation()
    return model, train(model, data, config(**options), folder, validator, resume)


def content_of(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def assert_same_run(found: Path, expected: Path) -> None:
    """The same weights, optimiser, random state, scores and log, to the last bit."""
    (header, tensors), (expected_header, expected_tensors) = (
        content_of(folder / "last.safetensors") for folder in (found, expected)
    )
    assert header == expected_header
    assert tensors.keys() == expected_tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected_tensors[name]), name
    assert (found / "log.jsonl").read_text() == (expected / "log.jsonl").read_text()
    assert sorted(path.name for path in found.iterdir()) == ["last.safetensors", "log.jsonl"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


# A run.


def test_a_run_learns_and_is_logged(whole: Path) -> None:
    log = log_of(whole)
    assert [record["epoch"] for record in log] == [1, 2, 3]
    assert [record["step"] for record in log] == [4, 8, 12]
    assert log[-1]["train_loss"] < log[0]["train_loss"] / 2
    for record in log:
        assert record["train_half"] == pytest.approx(record["train_loss"] / 2)
        assert record["other"] == 1.0
        assert record["score"] < 0
        assert record["train_gradient_norm"] > 0


def test_where_the_run_ended_is_given_back(tmp_path: Path) -> None:
    data = Data()
    _, position = run(tmp_path, data)
    assert (position.epoch, position.step_in_epoch, position.step) == (EPOCHS, 0, EPOCHS * STEPS)
    assert data.given == [(e, n) for e in range(EPOCHS) for n in range(STEPS)]
    assert position.scores == [record["score"] for record in log_of(tmp_path)]


def test_without_validation_there_are_no_scores(tmp_path: Path) -> None:
    position = train(Model(), Data(), config(), tmp_path)
    assert position.scores == []
    assert log_of(tmp_path)[0].keys() == {
        "epoch", "step", "learning_rate", "train_loss", "train_half", "train_gradient_norm"
    }  # fmt: skip


def test_nothing_to_train_on_is_a_sentence(tmp_path: Path) -> None:
    data = Data()
    data.steps = lambda epoch: 0  # type: ignore[method-assign]
    with pytest.raises(UserError, match="nothing to train on"):
        train(Model(), data, config(), tmp_path)


# Stopped and resumed.


@pytest.mark.parametrize("number", range(EPOCHS * STEPS))
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_step(whole: Path, tmp_path: Path, number: int, kind: int) -> None:
    moment = divmod(number, STEPS)

    def ask(epoch: int, step: int) -> None:
        if (epoch, step) == moment:
            signal.raise_signal(kind)

    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    first = Data(ask)
    with pytest.raises(Interrupted, match=f"stopped after step {number + 1}; .*--resume"):
        run(tmp_path, first)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    second = Data()
    run(tmp_path, second, resume=True)
    assert_same_run(tmp_path, whole)
    # No step is made twice.
    assert first.given + second.given == [(e, n) for e in range(EPOCHS) for n in range(STEPS)]


def test_stopped_after_every_single_step(whole: Path, tmp_path: Path) -> None:
    for _ in range(EPOCHS * STEPS):
        with pytest.raises(Interrupted):
            run(tmp_path, Data(lambda *_: signal.raise_signal(signal.SIGINT)), resume=True)
    run(tmp_path, resume=True)
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("number", range(EPOCHS * STEPS))
@pytest.mark.parametrize("checkpoint_seconds", [300.0, 0.0])
def test_an_error_at_any_step(
    whole: Path, tmp_path: Path, number: int, checkpoint_seconds: float
) -> None:
    moment = divmod(number, STEPS)

    def fail(epoch: int, step: int) -> None:
        if (epoch, step) == moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Data(fail), checkpoint_seconds=checkpoint_seconds)
    data = Data()
    run(tmp_path, data, resume=True)
    # From the step that failed, or from the epoch's first.
    assert data.given[0] == (moment if checkpoint_seconds == 0.0 else (moment[0], 0))
    assert_same_run(tmp_path, whole)


def train_to_validation(folder: Path, epoch: int, happen: Callable[[], None]) -> None:
    """Train; while this epoch is validated, something happens."""
    torch.manual_seed(0)
    model = Model()
    validator = Validator(model)

    def validate() -> dict[str, float]:
        scores = validator.run()
        if validator.runs == epoch:
            happen()
        return scores

    train(model, Data(), config(), folder, Validation(validate, "score", validator.kept.append))


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_what_was_learned_is_safe_before_it_is_validated(
    whole: Path, tmp_path: Path, epoch: int
) -> None:
    def fail() -> None:
        raise UserError("no room for captions")

    with pytest.raises(UserError, match="no room for captions"):
        train_to_validation(tmp_path, epoch, fail)
    data = Data()
    run(tmp_path, data, resume=True)
    assert data.given == [(e, n) for e in range(epoch, EPOCHS) for n in range(STEPS)]
    assert_same_run(tmp_path, whole)


@pytest.mark.parametrize("epoch", range(1, EPOCHS + 1))
def test_a_signal_while_validating(whole: Path, tmp_path: Path, epoch: int) -> None:
    with nullcontext() if epoch == EPOCHS else pytest.raises(Interrupted):  # The last thing to do.
        train_to_validation(tmp_path, epoch, lambda: signal.raise_signal(signal.SIGTERM))
    run(tmp_path, resume=True)
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
    def ask(*moment: int) -> None:
        if moment == (1, step):
            signal.raise_signal(signal.SIGINT)

    run(tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        run(tmp_path / "stopped", Data(ask), **options)
    run(tmp_path / "stopped", resume=True, **options)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


def test_a_second_signal_ends_the_run_at_once(tmp_path: Path) -> None:
    def ask_twice(epoch: int, step: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Data(ask_twice))


@pytest.mark.parametrize("asked_before", [False, True])
def test_a_run_that_ended_between_its_log_and_its_checkpoint(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_before: bool
) -> None:
    if asked_before:  # There is a checkpoint of the epoch's last step already.

        def ask(epoch: int, step: int) -> None:
            if step == STEPS - 1:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(Interrupted):
            run(tmp_path, Data(ask))

    def stop(path: Path, model: Any, optimizer: Any, position: Position, *others: Any) -> None:
        if position.step_in_epoch == 0:
            raise KeyboardInterrupt
        save_checkpoint(path, model, optimizer, position, *others)

    monkeypatch.setattr(loop_module, "save_checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, resume=True)
    assert [record["step"] for record in log_of(tmp_path)] == [STEPS]
    monkeypatch.undo()
    run(tmp_path, resume=True)
    assert_same_run(tmp_path, whole)


def test_a_log_that_was_cut_off_is_mended(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, epochs=2)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 3, "st')
    run(tmp_path, resume=True)
    assert_same_run(tmp_path, whole)


def test_resuming_a_run_that_is_done_changes_nothing(whole: Path, tmp_path: Path) -> None:
    run(tmp_path)
    data = Data()
    _, position = run(tmp_path, data, resume=True)
    assert data.given == []
    assert position.epoch == EPOCHS
    assert_same_run(tmp_path, whole)


def test_resuming_a_run_that_never_began_begins_it(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, resume=True)
    assert_same_run(tmp_path, whole)


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    run(tmp_path / "short", epochs=1)
    run(tmp_path / "short", resume=True, epochs=2)
    run(tmp_path / "long", epochs=2)
    assert_same_run(tmp_path / "short", tmp_path / "long")


def test_without_resume_a_run_begins_anew(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, epochs=2)
    run(tmp_path)
    assert_same_run(tmp_path, whole)


def test_checkpoints_in_between_change_nothing(whole: Path, tmp_path: Path) -> None:
    run(tmp_path, checkpoint_seconds=0.0)
    assert_same_run(tmp_path, whole)


# What goes wrong.


@pytest.mark.parametrize(
    ("extra", "loss"),
    [
        (lambda weight: weight.sum() * math.nan, "nan"),
        (lambda weight: weight.sum() * math.inf, "(nan|-?inf)"),
        (lambda weight: torch.sqrt(weight.sum() * 0.0), r"\d+\.\d+"),  # finite, unlike its slope
    ],
)
@pytest.mark.parametrize("clip_norm", [0.0, 5.0])
def test_a_loss_that_is_no_number_stops_the_run(
    tmp_path: Path, extra: Callable[[Tensor], Tensor], loss: str, clip_norm: float
) -> None:
    torch.manual_seed(0)
    model = Model()
    before: dict[str, Tensor] = {}

    def spoil(epoch: int, step: int) -> None:
        if (epoch, step) == (1, 2):
            before.update({name: t.clone() for name, t in model.named_parameters()})
            model.extra = lambda: extra(model.linear(0).weight)

    settings = config(clip_norm=clip_norm, checkpoint_seconds=0.0)
    sentence = rf"the loss is {loss} and .* at step 7, in epoch 2: .*; .*last\.safetensors is from"
    with pytest.raises(UserError, match=sentence):
        train(model, Data(spoil), settings, tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name
    header, tensors = content_of(tmp_path / "last.safetensors")
    assert json.loads(header["position"])["step"] == 6
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_at_the_first_step_there_is_no_checkpoint_to_name(tmp_path: Path) -> None:
    model = Model()
    model.extra = lambda: math.nan
    with pytest.raises(UserError, match=r"at step 1, in epoch 1: lower .* clip_norm$"):
        train(model, Data(), config(), tmp_path)
    assert not (tmp_path / "last.safetensors").exists()


def test_a_score_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    model = Model()
    validator = Validator(model, [1.0, math.nan])
    with pytest.raises(UserError, match="the validation score 'score' is not a number"):
        train(model, Data(), config(), tmp_path, validator.validation())
    assert len(validator.kept) == 1


def test_a_damaged_checkpoint_is_refused_and_the_log_kept(tmp_path: Path) -> None:
    run(tmp_path, epochs=1)
    path = tmp_path / "last.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"checkpoint .*last\.safetensors cannot be read"):
        run(tmp_path, resume=True)
    assert len(log_of(tmp_path)) == 1


# Settings.


def validated(folder: Path, scores: list[float], **options: Any) -> tuple[Validator, Position]:
    """Train with validation scores written down beforehand."""
    torch.manual_seed(0)
    model = Model()
    validator = Validator(model, scores)
    position = train(model, Data(), config(**options), folder, validator.validation())
    return validator, position


def test_early_stopping_on_the_validation_score(tmp_path: Path) -> None:
    validator, position = validated(tmp_path, [1, 3, 2, 3, 9], epochs=9, patience=2)
    assert position.epoch == 4
    assert position.scores == [1, 3, 2, 3]  # as good as the best is not better
    assert [kept["score"] for kept in validator.kept] == [1, 3]
    # Neither does a resumed run go on.
    model = Model()
    data = Data()
    train(model, data, config(epochs=9, patience=2), tmp_path, Validator(model).validation(), True)
    assert data.given == []


def test_no_early_stopping_without_patience(tmp_path: Path) -> None:
    validator, position = validated(tmp_path, [3, 2, 1, 0, -1], epochs=5, patience=0)
    assert position.epoch == 5
    assert len(validator.kept) == 1


def test_validation_every_so_many_epochs_and_after_the_last(tmp_path: Path) -> None:
    validated(tmp_path, [1, 2, 3], epochs=5, validate_every=2)
    scores = [record.get("score") for record in log_of(tmp_path)]
    assert scores == [None, 1, None, 2, 3]


def test_a_model_that_was_trained_before_is_validated_first(tmp_path: Path) -> None:
    def trained(folder: Path, epochs: int, scores: list[float]) -> Validator:
        torch.manual_seed(0)
        model = Model()
        validator = Validator(model, scores)
        validation = replace(validator.validation(), before=True)
        train(model, Data(), config(epochs=epochs), folder, validation, resume=True)
        return validator

    whole, split = tmp_path / "whole", tmp_path / "split"
    validator = trained(whole, 3, [5, 2, 3, 6])
    assert [kept["score"] for kept in validator.kept] == [5, 6]
    log = [(record["epoch"], record["step"], record["score"]) for record in log_of(whole)]
    assert log == [(0, 0, 5), (1, STEPS, 2), (2, 2 * STEPS, 3), (3, 3 * STEPS, 6)]
    trained(split, 1, [5, 2])
    trained(split, 3, [3, 6])
    assert_same_run(split, whole)


def rates(folder: Path) -> list[float]:
    return [record["learning_rate"] for record in log_of(folder)]


def test_the_learning_rate_falls_at_a_plateau(tmp_path: Path) -> None:
    options = {"epochs": 6, "decay_patience": 2, "decay_factor": 0.5, "learning_rate": 0.08}
    validated(tmp_path, [1, 1, 0, 2, 2, 2], **options)
    assert rates(tmp_path) == pytest.approx([0.08, 0.08, 0.08, 0.04, 0.04, 0.04])


def test_the_learning_rate_falls_as_a_cosine(tmp_path: Path) -> None:
    run(tmp_path, schedule="cosine", warmup_steps=2, learning_rate=0.08)
    expected = [0.04 * (1 + math.cos(math.pi * (step - 2) / 10)) for step in (3, 7, 11)]
    assert rates(tmp_path) == pytest.approx(expected)


def test_groups_have_learning_rates_of_their_own_on_the_schedule(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model()
    before = [model.linear(index).weight.detach().clone() for index in (0, 4)]
    groups: list[dict[str, Any]] = [
        {"params": list(model.layers[:4].parameters())},
        {"params": list(model.layers[4].parameters()), "lr": 0.0001},
    ]

    def stop_after_one(epoch: int, step: int) -> None:
        if step == 1:
            raise KeyboardInterrupt

    settings = config(schedule="constant", learning_rate=0.01, warmup_steps=10)
    optimizer = make_optimizer(model, settings, groups)
    with pytest.raises(KeyboardInterrupt):
        train(model, Data(stop_after_one), settings, tmp_path, optimizer=optimizer)
    first, second = (
        float((model.linear(index).weight.detach() - start).abs().max())
        for index, start in zip((0, 4), before, strict=True)
    )
    # Adam's first step is as long as its rate, here the first tenth of the warm-up.
    assert first == pytest.approx(0.001, rel=0.02)
    assert second == pytest.approx(0.00001, rel=0.02)


def gradient_norm(model: nn.Module) -> float:
    squares = [p.grad.square().sum() for p in model.parameters() if p.grad is not None]
    return math.sqrt(float(sum(squares)))


@pytest.mark.parametrize("clip_norm", [0.0, 1e-3, 1e6])
def test_gradients_are_scaled_down_to_the_norm(tmp_path: Path, clip_norm: float) -> None:
    torch.manual_seed(0)
    model = Model()
    used: list[float] = []
    data = Data()
    # The gradient a step was made with is there until the next step.
    data.before = lambda epoch, step: used.append(gradient_norm(model))
    train(model, data, config(epochs=1, clip_norm=clip_norm), tmp_path)
    used = [*used[1:], gradient_norm(model)]
    reported = log_of(tmp_path)[0]["train_gradient_norm"]
    assert reported > 0.1  # as it was before
    if clip_norm == 1e-3:
        assert used == pytest.approx([1e-3] * STEPS, rel=1e-2)
    else:
        assert sum(used) / STEPS == pytest.approx(reported, rel=1e-5)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_narrow_type_is_for_the_products_alone(tmp_path: Path, precision: str) -> None:
    torch.manual_seed(0)
    model = Model()
    seen: set[torch.dtype] = set()
    model.layers[0].register_forward_hook(lambda _, inputs, output: seen.add(output.dtype))
    position = train(model, Data(), config(precision=precision), tmp_path)
    assert position.step == EPOCHS * STEPS
    assert seen == {getattr(torch, precision)}
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    log = log_of(tmp_path)
    assert log[-1]["train_loss"] < log[0]["train_loss"]


@pytest.mark.parametrize(("precision", "said"), [("bfloat16", 1), ("float32", 0)])
def test_a_machine_without_bfloat16_is_told_of(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    precision: str,
    said: int,
) -> None:
    monkeypatch.setattr(loop_module, "has_bfloat16", lambda device: False)
    run(tmp_path, precision=precision)
    assert capsys.readouterr().err.count("has no instructions for bfloat16") == said


def test_a_checkpoint_without_averages_is_not_resumed_with_them(tmp_path: Path) -> None:
    run(tmp_path, epochs=1)
    with pytest.raises(UserError, match=r"belongs to another model: tensor 'average\.layers"):
        run(tmp_path, resume=True, average=0.5)


def test_the_models_of_the_last_validations_are_kept(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model()
    validator = Validator(model, scripted=[0.0] * 4)

    def save(place: Path) -> None:
        assert not model.training
        place.mkdir(parents=True, exist_ok=True)
        torch.save(model.linear(0).weight, place / "w")

    validation = Validation(validator.run, "score", validator.kept.append, save=save)
    train(model, Data(), config(epochs=3, keep_last=2), tmp_path, validation)
    kept = {path.name: torch.load(path / "w") for path in (tmp_path / "models").iterdir()}
    assert kept.keys() == {"epoch-002", "epoch-003"}
    assert kept["epoch-003"].equal(model.linear(0).weight)
    assert not kept["epoch-002"].equal(kept["epoch-003"])
    train(model, Data(), config(epochs=1), tmp_path / "none", validation)
    assert not (tmp_path / "none" / "models").exists()
