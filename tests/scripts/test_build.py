from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from samples import save_photo
from scripts_samples import ROOT, run

from captioner.caption import load_model
from captioner.cli.main import build_parser
from captioner.errors import UserError
from captioner.runs.captioning_recipe import read_recipe

FOLDERS = {
    "--flickr": Path("data/flickr8k"),
    "--everyday": Path("data/everyday"),
    "--teachers": Path("data/teachers"),
}
SCORES = {"BLEU-4": 0.2, "CIDEr-D": 0.45, "word-precision": 0.5, "captions with none": 0.1}
CALIBRATED = {"splits": {"flickr": {"expected": 0.46, "observed": 0.47, "unsure": 0.032}}}


def typed(**changes: object) -> list[str]:
    """What is typed to begin. changes: of options."""
    given = {**FOLDERS, **{f"--{name}": value for name, value in changes.items()}}
    return ["build", *(part for pair in given.items() for part in map(str, pair))]


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
        folder = Path(command[command.index("--out") + 1]) if "--out" in command else None
        if self.code == 0 and "--json" in command:
            if "calibrate" in command:
                model = Path(command[command.index("--model") + 1]) / "config.json"
                model.write_text(model.read_text() + " calibrated")
            found = CALIBRATED if "calibrate" in command else SCORES
            Path(command[command.index("--json") + 1]).write_text(json.dumps(found))
        elif folder is not None and "average" in command:
            folder.mkdir()
            (folder / "config.json").write_text("mean")
        elif folder is not None and folder.name == "tables":
            folder.mkdir(exist_ok=True)
            (folder / "evaluation.json").write_text(json.dumps(SCORES))
        elif folder is not None:
            (folder / "model").mkdir(parents=True, exist_ok=True)
            (folder / "model" / "config.json").write_text(folder.name)
            (folder / "last.safetensors").write_bytes(b"")
            records = [{"epoch": 1}, {"epoch": 2, "CIDEr-D": 0.3, "BLEU-4": 0.1}, {"epoch": 3}]
            if "captioner" not in command:
                records = [{"epoch": 1, "mean": 0.5, "everyday things": 0.6}]
            (folder / "log.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
        return SimpleNamespace(returncode=self.code)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, script: ModuleType, tmp_path: Path) -> Machine:
    found = Machine()
    monkeypatch.setattr(subprocess, "run", found)
    monkeypatch.setattr(script.time, "monotonic", lambda: found.now)
    monkeypatch.setattr("sys.argv", typed(out=tmp_path))
    return found


def test_steps_are_done_once_each_and_in_order(
    script: ModuleType, machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.main()
    scripts = [Path(part).stem for command in machine.commands for part in command[1:2]]
    names = [
        command[3] if name == "-m" else name
        for name, command in zip(scripts, machine.commands, strict=True)
    ]
    assert names == [
        *("tables", "teacher_features", "train"),
        *("distill", "train", "train", "train") * 2,
        *("average", "calibrate"),
    ]
    assert not any("--resume" in command for command in machine.commands)
    assert (tmp_path / "self_critical/model/config.json").read_text() == "self_critical"
    assert (tmp_path / "mean/model/config.json").read_text() == "mean"
    assert (tmp_path / "model/config.json").read_text() == "mean calibrated"
    first = capsys.readouterr().out
    assert "epoch 1 of 1: everyday things 0.600; 0 minutes" in first
    shown = "BLEU-4 0.200, CIDEr-D 0.450, word-precision 0.500, captions with none 0.100; 0 minutes"
    assert first.count(shown) == 1
    assert "epoch 2 of 3: BLEU-4 0.100, CIDEr-D 0.300; 0 minutes" in first
    assert "flickr: confidence 0.460 where 0.470 is true, not sure of 3.2% of photos" in first
    (tmp_path / "model/config.json").write_text("mine")
    script.main()
    assert len(machine.commands) == 13
    assert (tmp_path / "model/config.json").read_text() == "mine"
    # What was given is printed again.
    assert first.count("0 minutes\n") == capsys.readouterr().out.count("0 minutes\n") == 13


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
    assert (tmp_path / "model/config.json").read_text() == "mean calibrated"
    with pytest.raises(UserError, match=r"model folder .*absent does not exist"):
        script.copy_model(tmp_path / "absent", tmp_path / "other")


@pytest.mark.parametrize(
    "other",
    [
        *({"flickr": "nowhere"}, {"everyday": "nowhere"}, {"teachers": "nowhere"}),
        *({"start-from": "default"}, {"precision": "float32"}, {"set": "training.seed=2"}),
    ],
)
def test_what_was_done_with_other_data_is_not_taken_for_done(
    script: ModuleType,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    other: dict[str, str],
) -> None:
    script.main()
    (tmp_path / "other").symlink_to(Path("data").resolve(), target_is_directory=True)
    same = {
        "flickr": FOLDERS["--flickr"].resolve(),
        "teachers": tmp_path / "other/teachers",
        "out": tmp_path,
    }
    monkeypatch.setattr("sys.argv", typed(**same))
    script.main()  # The same, spelt otherwise.
    assert len(machine.commands) == 13
    monkeypatch.setattr("sys.argv", typed(**{**same, **other}))
    with pytest.raises(UserError, match=r"was done with other data, teachers or settings") as error:
        script.main()
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert len(machine.commands) == 13


def test_what_was_begun_with_other_data_does_not_go_on_with_these(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.code = 130
    with pytest.raises(UserError, match="step tables ended"):
        script.main()
    monkeypatch.setattr("sys.argv", [*sys.argv, "--everyday", "nowhere"])
    with pytest.raises(UserError, match="step tables was begun with other data"):
        script.main()
    assert len(machine.commands) == 1


def test_a_record_that_says_nothing_is_no_evidence(
    script: ModuleType, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/done.txt").write_text("30 minutes since it was last begun\n")
    with pytest.raises(UserError, match=r"tables.done\.txt does not say what was done; delete it"):
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
    monkeypatch.setattr("sys.argv", [*sys.argv, "--only", "eyes"])
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
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [*sys.argv, "--only", "eyes"])
    machine.code = 130
    with pytest.raises(UserError, match="step eyes ended with exit code 130"):
        script.main()
    machine.code = 0
    script.main()
    assert ["--resume" in command for command in machine.commands] == [False, True]


def test_steps_go_on_from_what_those_before_them_leave(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    inputs = script.Inputs(*FOLDERS.values(), changes=("training.seed=3",))
    given: list[str] = []
    left: list[str] = []
    steps = script.steps_of(inputs, Path("runs/default_model"))
    for command in (step.command for step in steps):
        for option, part in zip(["", *command], command, strict=False):
            for place in part.split("=")[-1:]:
                if place.startswith("runs/default_model/"):
                    found = left if option in ("--out", "--json") else given
                    found.append("/".join(Path(place).parts[2:]))
        if "captioner" in command:
            arguments = build_parser().parse_args(command[command.index("captioner") + 1 :])
        if "train" in command[:4]:
            recipe = read_recipe(arguments.config, arguments.changes)
            assert recipe.training.seed == 3
            assert recipe.training.precision == recipe.features.precision == "bfloat16"
            # What the configs name by themselves is what the script puts there.
            plain = read_recipe(arguments.config)
            assert plain.data == recipe.data
            if not str(recipe.features.folder).endswith("_again"):
                assert (plain.start_from, plain.encoder) == (recipe.start_from, recipe.encoder)
                assert plain.features.folder == recipe.features.folder

    tables = [f"tables/{name}" for name in ("people.jsonl", "validation.jsonl", "instances.json")]
    of_teachers = [*tables, "teacher_maps/stand_in.safetensors", "teacher_maps/store"]
    trained = ("eyes", "fine_tuning", "self_critical", "truthful")
    again: list[str] = []
    from_eyes: list[str] = []
    for suffix, start in (("", ()), ("_again", ["eyes/model"])):
        eyes, fine_tuning = f"eyes{suffix}/model", f"fine_tuning{suffix}/model"
        of_eyes = [*tables, eyes, f"features{suffix}"]
        from_eyes += ["tables", "words/model", "tables/all.jsonl", *start]
        from_eyes += [*of_eyes, eyes, *[*of_eyes, fine_tuning] * 2]
        again += [f"{name}{suffix}" for name in trained]
    assert given == [
        *("tables/scales.safetensors", *of_teachers),
        *of_teachers,
        *from_eyes,
        *("self_critical/model", "truthful/model"),
        *("self_critical_again/model", "truthful_again/model"),
        *("confidence/model", "tables/people.jsonl"),  # Changed.
    ]
    assert left == ["tables", "words", *again, "mean/model", "confidence/calibration.json"]


def test_an_unknown_step_is_named(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", typed(out=tmp_path, only="ears"))
    with pytest.raises(UserError, match="--only ears is not one of tables, teacher_maps, words"):
        script.main()
    assert machine.commands == []


TEACHERS = """
import torch
from torch import nn

CHANNELS = {"block_10": 112, "block_15": 320, "pooled": 1280, "logits": 1001}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({n: nn.Conv2d(3, c, 1) for n, c in CHANNELS.items()})
        self.requires_grad_(False)
        self.classes = ["background", "???", *NAMES]

    def forward(self, pixels, stages):
        made = {}
        for name in stages:
            stride = 16 if name == "block_10" else 32
            side = pixels.shape[-1] // stride if "block" in name else 1
            pooled = nn.functional.adaptive_avg_pool2d(pixels, side)
            made[name] = self.layers[name](pooled)
            if side == 1:
                made[name] = made[name].flatten(1)
        return made

    def detect(self, pixels, threshold):
        logits = self(pixels, ["logits"])["logits"]
        found = [(3 * row[:80].abs()).clamp(max=1).tolist() for row in logits]
        box = (0.1, 0.2, 0.7, 0.9)
        return [
            [(name, score, box) for name, score in zip(NAMES, row) if score > threshold]
            for row in found
        ]


def load(name, folder):
    torch.manual_seed(len(name))
    return Network().eval()
"""
"""A module of teachers with random weights, but for `NAMES`, the things its detector knows."""

CAPTIONS = (
    "a black dog runs over the green grass",
    "two children play with a red ball",
    "a slice of pizza lies on a white plate",
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Folders of a few photos, of both worlds, and of teachers with random weights."""
    for split, names in (("train", range(6)), ("val", range(6, 15))):
        for number in names:
            save_photo(tmp_path / f"flickr/images/{number}.jpg", number)
        (tmp_path / f"flickr/{split}.txt").write_text("".join(f"{n}.jpg\n" for n in names))
    lines = [f"{n}.jpg#{m}\t{CAPTIONS[(n + m) % 3]}.\n" for n in range(15) for m in range(2)]
    (tmp_path / "flickr/Flickr8k.token.txt").write_text("".join(lines))
    for split, names in (("train", range(4)), ("val", range(4, 13))):
        for number in names:
            save_photo(tmp_path / f"everyday/photos/{number}.jpg", 100 + number)
        content = {
            "images": [{"id": n, "file_name": f"{n}.jpg"} for n in names],
            "annotations": [
                {"id": n, "image_id": n, "caption": CAPTIONS[n % 3].capitalize()} for n in names
            ],
        }
        (tmp_path / f"everyday/captions_{split}.json").write_text(json.dumps(content))
    for number in range(2):
        save_photo(tmp_path / f"everyday/unlabelled/{number}.jpg", 200 + number)
    (tmp_path / "everyday/text").mkdir()
    with gzip.open(tmp_path / "everyday/text/coco_captions.txt.gz", "wt") as file:
        file.write("\n".join(CAPTIONS))
    (tmp_path / "teachers").mkdir()
    things = ["dog", "pizza", *(f"thing {number}" for number in range(78))]
    (tmp_path / "teachers/teachers.py").write_text(f"NAMES = {things}\n{TEACHERS}")
    return tmp_path


@pytest.mark.slow
def test_a_few_photos_become_a_model_with_a_confidence(data: Path) -> None:
    small = {
        **{f"decoder.{size}_size": 16 for size in ("embedding", "hidden", "attention")},
        **{"decoder.dropout": 0.0, "training.epochs": 8, "training.batch_size": 4},
        **{"training.learning_rate": 0.02, "training.warmup_steps": 0, "training.average": 0.5},
        **{"training.validate_every": 8, "minimum_count": 1, "search.beam": 2},
    }
    arguments = [
        *("--flickr", "flickr", "--everyday", "everyday", "--teachers", "teachers"),
        *("--out", "runs", "--start-from", "random", "--precision", "float32"),
        *(f"--set={field}={value}" for field, value in small.items()),
    ]
    run(data, str(ROOT / "scripts/default_model/build.py"), *arguments)
    model = load_model(data / "runs/model")
    (caption,) = model.caption([data / "flickr/images/6.jpg"])
    assert caption.words
    assert caption.confidence is not None
    people, every = (
        (data / f"runs/tables/{name}.jsonl").read_text().splitlines() for name in ("people", "all")
    )
    assert len(every) == len(people) + 2 * 3  # Photos without captions, three captions each.
    eyes = load_model(data / "runs/eyes/model").encoder
    torch.testing.assert_close(
        eyes.state_dict()["features.0.weight"],
        model.encoder.state_dict()["features.0.weight"],
        rtol=1e-3,
        atol=1e-3,
    )
