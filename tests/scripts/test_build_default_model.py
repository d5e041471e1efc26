from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from scripts_samples import ROOT

from captioner.cli.main import build_parser
from captioner.errors import UserError
from captioner.recipes.config import read_recipe

DATA, TEACHERS = Path("data/flickr8k"), Path("data/teacher")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import build_default_model

    return build_default_model


class Machine:
    """In place of `subprocess.run`: every program leaves a log, and a model where it trains one."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.code = 0

    def __call__(self, command: list[str]) -> SimpleNamespace:
        self.commands.append(command)
        if "--out" not in command:  # It only fills the stores that the next one reads.
            return SimpleNamespace(returncode=self.code)
        folder = Path(command[command.index("--out") + 1])
        (folder / "model").mkdir(parents=True, exist_ok=True)
        (folder / "model" / "config.json").write_text(folder.name)
        (folder / "last.safetensors").write_bytes(b"")
        records = [{"epoch": 1}, {"epoch": 2, "CIDEr-D": 0.3, "BLEU-4": 0.1}, {"epoch": 3}]
        if "captioner" not in command:
            records = [{"epoch": 1, "mean": 0.5, "block 11": 0.6, "block 12": 0.4}]
        (folder / "log.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
        return SimpleNamespace(returncode=self.code)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, script: ModuleType, tmp_path: Path) -> Machine:
    found = Machine()
    monkeypatch.setattr(subprocess, "run", found)
    arguments = ["build", "--data", str(DATA), "--teachers", str(TEACHERS), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    return found


def test_steps_are_done_once_each_and_in_order(
    script: ModuleType, machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.main()
    names = [
        Path(command[command.index("--out") + 1] if "--out" in command else command[1]).name
        for command in machine.commands
    ]
    own = ["words", "full_eyes", "self_critical"]
    assert names == ["eyes", "wider_eyes", "teacher_features.py", *own]
    assert not any("--resume" in command for command in machine.commands)
    assert (tmp_path / "model/config.json").read_text() == "self_critical"
    said = capsys.readouterr().out
    assert "epoch 1 of 1: block 11 0.600, block 12 0.400" in said
    assert "epoch 2 of 3: BLEU-4 0.100, CIDEr-D 0.300" in said
    (tmp_path / "model/config.json").write_text("calibrated")
    script.main()
    assert len(machine.commands) == 6
    assert (tmp_path / "model/config.json").read_text() == "calibrated"


def test_a_step_that_was_stopped_goes_on_and_its_failure_is_named(
    script: ModuleType, machine: Machine
) -> None:
    machine.code = 130
    with pytest.raises(UserError, match="step eyes ended with exit code 130"):
        script.main()
    machine.code = 0
    script.main()
    assert ["--resume" in command for command in machine.commands] == [False, True, *[False] * 5]


def test_what_comes_before_a_step_must_end_well_too(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", [*sys.argv, "--only", "words"])
    machine.code = 2
    with pytest.raises(UserError, match="step words ended with exit code 2"):
        script.main()
    assert [Path(command[1]).name for command in machine.commands] == ["teacher_features.py"]
    # Begun again, both are; only what has a checkpoint is told so.
    machine.code = 0
    (tmp_path / "words").mkdir()
    (tmp_path / "words/last.safetensors").write_bytes(b"")
    script.main()
    _, before, training = machine.commands
    assert before == machine.commands[0]
    assert "--resume" not in before
    assert training[-1] == "--resume"


def test_steps_go_on_from_what_those_before_them_leave(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    given: list[str] = []
    for step in script.steps_of(DATA, TEACHERS, Path("runs/default_model")):
        commands = [step.command] if step.before is None else [step.before, step.command]
        for part in chain(*commands):
            for place in part.split("=")[1:] or [part]:
                if place.startswith("runs/default_model/"):
                    given.append("/".join(Path(place).parts[2:]))
        if "captioner" in step.command:
            typed = step.command[step.command.index("captioner") + 1 :]
            arguments = build_parser().parse_args([*typed, "--out", "runs/x"])
            recipe = read_recipe(arguments.config, arguments.changes)
            assert recipe.data.images == DATA / "images"
            # What the configs name by themselves is what the script puts there.
            plain = read_recipe(arguments.config)
            assert (plain.start_from, plain.encoder) == (recipe.start_from, recipe.encoder)
            assert plain.features == recipe.features
    stored = ["teacher_features", "teacher_features/stand_in.safetensors"]
    assert given == [
        "eyes/encoder.safetensors",
        *stored,  # Filled, then read.
        *stored,
        *("wider_eyes/encoder.safetensors", "words/model"),
        *("full_eyes/model", "full_eyes/model"),  # What is started from, and its eyes.
    ]


def test_an_unknown_step_is_named(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ["build", "--data", "d", "--teachers", "t", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*arguments, "--only", "ears"])
    with pytest.raises(
        UserError, match="--only ears is not one of eyes, wider_eyes, words, full_eyes"
    ):
        script.main()
    assert machine.commands == []
