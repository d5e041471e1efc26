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
from captioner.runs.captioning_recipe import read_recipe

DATA, TEACHERS = Path("data/flickr8k"), Path("data/teacher")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    import build

    return build


class Machine:
    """In place of `subprocess.run`: every program leaves its figures, and a model if it trains one.

    seconds: that each program takes, by the clock of the script.
    """

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.code = 0
        self.seconds = 0.0
        self.now = 0.0

    def __call__(self, command: list[str]) -> SimpleNamespace:
        self.commands.append(command)
        self.now += self.seconds
        if self.code == 0 and "--json" in command:
            scores = {"BLEU-4": 0.2, "CIDEr-D": 0.45}
            if "calibrate" in command:
                model = Path(command[command.index("--model") + 1]) / "config.json"
                model.write_text(model.read_text() + " calibrated")
                scores = {
                    "photos": {"confidence": 0.46, "unsure": 0.032},  # type: ignore[dict-item]
                    "observed": 0.47,
                    "reliability": {"error": 0.03},  # type: ignore[dict-item]
                }
            Path(command[command.index("--json") + 1]).write_text(json.dumps(scores))
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
    monkeypatch.setattr(script.time, "monotonic", lambda: found.now)
    arguments = ["build", "--data", str(DATA), "--teachers", str(TEACHERS), "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    return found


def test_steps_are_done_once_each_and_in_order(
    script: ModuleType, machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.main()
    names = []
    for command in machine.commands:
        named = command[command.index("--out") + 1] if "--out" in command else command[1]
        names.append(command[3] if named == "-m" else Path(named).name)
    own = ["words", "full_eyes", "evaluate", "self_critical", "calibrate"]
    assert names == ["eyes", "wider_eyes", "teacher_features.py", *own]
    assert not any("--resume" in command for command in machine.commands)
    assert (tmp_path / "self_critical/model/config.json").read_text() == "self_critical"
    assert (tmp_path / "model/config.json").read_text() == "self_critical calibrated"
    first = capsys.readouterr().out
    assert "epoch 1 of 1: block 11 0.600, block 12 0.400; captions with these eyes: " in first
    assert "captions with these eyes: BLEU-4 0.200, CIDEr-D 0.450; 0 minutes" in first
    assert "epoch 2 of 3: BLEU-4 0.100, CIDEr-D 0.300; 0 minutes" in first
    assert "confidence 0.460 where 0.470 were, expected calibration error 0.030, not sure of 3" in (
        first
    )
    (tmp_path / "model/config.json").write_text("mine")
    script.main()
    assert len(machine.commands) == 8
    assert (tmp_path / "model/config.json").read_text() == "mine"
    # What was given is printed again.
    assert first.count("; 0 minutes") == capsys.readouterr().out.count("; 0 minutes") == 6


def test_a_model_that_was_not_copied_to_its_end_is(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty folder is what an older copy leaves; a stop now leaves none."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(script, "write_bytes", stopped)
        with pytest.raises(KeyboardInterrupt):
            script.copy_model(ROOT / "captioner/models/default", tmp_path / "model")
    assert not list(tmp_path.iterdir())
    (tmp_path / "model").mkdir()
    script.main()
    assert (tmp_path / "model/config.json").read_text() == "self_critical calibrated"
    with pytest.raises(UserError, match=r"model folder .*absent does not exist"):
        script.copy_model(tmp_path / "absent", tmp_path / "other")


@pytest.mark.parametrize("option", ["--data", "--teachers"])
def test_what_was_done_with_other_data_is_not_taken_for_done(
    script: ModuleType,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    option: str,
) -> None:
    script.main()
    (tmp_path / "other").symlink_to(Path("data").resolve(), target_is_directory=True)
    given = {"--data": DATA, "--teachers": TEACHERS, "--out": tmp_path}

    def begin(**changes: Path) -> None:
        every = given | {f"--{name}": path for name, path in changes.items()}
        pairs = [part for name, path in every.items() for part in (name, str(path))]
        monkeypatch.setattr("sys.argv", ["build", *pairs])
        script.main()

    begin(data=DATA.resolve(), teachers=tmp_path / "other/teacher")  # The same, spelt otherwise.
    assert len(machine.commands) == 8
    with pytest.raises(UserError, match=r"was done with other data, teachers or settings") as error:
        begin(**{option.removeprefix("--"): Path("nowhere")})
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert len(machine.commands) == 8


def test_what_was_begun_with_other_data_does_not_go_on_with_these(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.code = 130
    with pytest.raises(UserError, match="step eyes ended"):
        script.main()
    monkeypatch.setattr("sys.argv", [*sys.argv, "--data", "nowhere"])
    with pytest.raises(UserError, match="step eyes was begun with other data"):
        script.main()
    assert len(machine.commands) == 1


def test_a_record_that_says_nothing_is_no_evidence(
    script: ModuleType, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "eyes").mkdir()
    (tmp_path / "eyes/done.txt").write_text("30 minutes since it was last begun\n")
    with pytest.raises(UserError, match=r"eyes.done\.txt does not say what was done; delete it"):
        script.main()
    assert machine.commands == []


def test_time_is_added_up_over_all_beginnings(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", [*sys.argv, "--only", "eyes"])
    machine.seconds, machine.code = 600.0, 130
    for _ in range(2):
        with pytest.raises(UserError, match="exit code 130"):
            script.main()
    machine.now += 10_000  # Nothing was being done.
    machine.code = 0
    script.main()
    assert (tmp_path / "eyes/done.txt").read_text().startswith("30 minutes\n")
    assert not (tmp_path / "eyes/begun.txt").exists()
    (tmp_path / "eyes/done.txt").rename(tmp_path / "eyes/begun.txt")
    with pytest.raises(UserError, match="begins with '30 minutes', which are no seconds"):
        script.main()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (None, r"run log .*log\.jsonl does not exist"),
        ("", "has no scores of validation photos"),
        ('{"epoch": 1}\n', "has no scores of validation photos"),
        ("{", r"log\.jsonl: line 1 is not a record in JSON"),
        ("7\n", r"log\.jsonl: line 1 is not a record in JSON"),
        ('{"mean": 0.5}\n', "has scores that are not numbers of an epoch"),
        ('{"epoch": 1, "mean": "good"}\n', "has scores that are not numbers of an epoch"),
    ],
)
def test_a_run_without_scores_is_named(
    script: ModuleType, machine: Machine, tmp_path: Path, log: str | None, message: str
) -> None:
    script.main()
    file = tmp_path / "eyes/log.jsonl"
    file.unlink()
    if log is not None:
        file.write_text(log)
    with pytest.raises(UserError, match=message):
        script.main()


def test_a_step_without_figures_is_not_done(
    script: ModuleType, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves_nothing(command: list[str]) -> SimpleNamespace:
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", leaves_nothing)
    with pytest.raises(UserError, match=r"run log .*eyes.log\.jsonl does not exist"):
        script.main()
    assert not (tmp_path / "eyes/done.txt").exists()


def test_other_figures_are_named(script: ModuleType, tmp_path: Path) -> None:
    for content in ("{}", "[]", "7", '{"photos": 3}', '{"BLEU-4": 1}'):
        (tmp_path / "found.json").write_text(content)
        for read in (script.of_evaluation, script.of_calibration):
            with pytest.raises(UserError, match=r"found\.json does not hold the figures"):
                read(tmp_path / "found.json")


def test_a_step_that_was_stopped_goes_on_and_its_failure_is_named(
    script: ModuleType, machine: Machine
) -> None:
    machine.code = 130
    with pytest.raises(UserError, match="step eyes ended with exit code 130"):
        script.main()
    machine.code = 0
    script.main()
    assert ["--resume" in command for command in machine.commands] == [False, True, *[False] * 7]


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
    left: list[str] = []
    for command in chain(
        *(step.commands for step in script.steps_of(DATA, TEACHERS, Path("runs/default_model")))
    ):
        for option, part in zip(["", *command], command, strict=False):
            for place in part.split("=")[1:] or [part]:
                if place.startswith("runs/default_model/"):
                    found = left if option in ("--out", "--json") else given
                    found.append("/".join(Path(place).parts[2:]))
        if "captioner" in command:
            arguments = build_parser().parse_args(command[command.index("captioner") + 1 :])
        if "train" in command:
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
        "full_eyes/model",  # Judged.
        *("full_eyes/model", "full_eyes/model"),  # What is started from, and its eyes.
        "confidence/model",  # Changed.
    ]
    evaluated = ["full_eyes", "full_eyes/evaluation.json", "self_critical"]
    assert left == ["eyes", "wider_eyes", "words", *evaluated, "confidence/calibration.json"]


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
