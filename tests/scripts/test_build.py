from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy
import pytest
import torch
from PIL import Image
from samples import save_photo
from scripts_samples import ROOT, run

from captioner.caption import load_model
from captioner.cli.main import build_parser
from captioner.errors import UserError
from captioner.runs.captioning_recipe import read_recipe

FOLDERS = [
    *("--flickr", "data/flickr8k", "--everyday", "data/everyday"),
    *("--teachers", "data/teachers"),
]
SCORES = {"BLEU-4": 0.2, "CIDEr-D": 0.45, "word-precision": 0.5, "captions with none": 0.1}
CALIBRATED = {"splits": {"flickr": {"expected": 0.46, "observed": 0.47, "unsure": 0.032}}}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    import build

    return build


class Machine:
    """In place of `subprocess.run`: every program leaves its figures, and a model if it trains one.

    code: with which each program ends.
    """

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.code = 0

    def __call__(self, command: list[str]) -> SimpleNamespace:
        self.commands.append(command)
        folder = Path(command[command.index("--out") + 1]) if "--out" in command else None
        if "calibrate" in command:
            model = Path(command[command.index("calibrate") + 1]) / "config.json"
            model.write_text(model.read_text() + " calibrated")
            Path(command[command.index("--json") + 1]).write_text(json.dumps(CALIBRATED))
        elif Path(command[1]).stem == "mean":
            folder.mkdir()
            (folder / "config.json").write_text("mean")
        elif folder is not None and folder.name == "tables":
            (folder / "evaluation.json").write_text(json.dumps(SCORES))
        elif folder is not None:
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
    monkeypatch.setattr("sys.argv", ["build", *FOLDERS, "--out", str(tmp_path)])
    return found


def test_steps_are_done_once_each_and_in_order(
    script: ModuleType, machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.main()
    names = [
        command[3] if command[1] == "-m" else Path(command[1]).stem for command in machine.commands
    ]
    steps = ("tables", "teacher_features", "train", "distill", "train")
    assert names == [*steps, "train", "mean", "calibrate"]
    assert not any("--resume" in command for command in machine.commands)
    assert (tmp_path / "mean/model/config.json").read_text() == "mean"
    assert (tmp_path / "confidence/model/config.json").read_text() == "mean calibrated"
    first = capsys.readouterr().out
    assert "epoch 1 of 1: everyday things 0.600; 0 minutes" in first
    shown = "BLEU-4 0.200, CIDEr-D 0.450, word-precision 0.500, captions with none 0.100; 0 minutes"
    assert first.count(shown) == 1
    assert "epoch 2 of 3: BLEU-4 0.100, CIDEr-D 0.300; 0 minutes" in first
    assert "flickr: confidence 0.460 where 0.470 is true, not sure of 3.2% of photos" in first
    script.main()
    assert len(machine.commands) == len(names)
    # What was given is printed again.
    assert first.count("0 minutes\n") == capsys.readouterr().out.count("0 minutes\n") == len(names)


@pytest.mark.parametrize("code", [0, 130])
def test_what_was_begun_with_other_data_does_not_go_on_with_these(
    script: ModuleType, machine: Machine, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    machine.code = code
    if code:
        with pytest.raises(UserError, match="step tables ended with exit code 130"):
            script.main()
    else:
        script.main()
    begun = len(machine.commands)
    monkeypatch.setattr("sys.argv", [*sys.argv, "--everyday", "nowhere"])
    with pytest.raises(UserError, match="step tables was begun with other data, teachers or set"):
        script.main()
    assert len(machine.commands) == begun


def test_steps_go_on_from_what_those_before_them_leave(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    inputs = script.parsed([*FOLDERS, "--out", "runs/default_model", "--set=training.seed=3"])
    left = {"features", "people_features", "teacher_maps"}  # Made on the way.
    for command in (step.command for step in script.steps_of(inputs)):
        given, made = set[str](), set[str]()
        for option, part in zip(["", *command], command, strict=False):
            place = part.split("=")[-1]
            if place.startswith("runs/default_model/"):
                (made if option in ("--out", "--json") else given).add(place.split("/")[2])
        assert given <= left | made
        left |= made
        if "captioner" in command:
            arguments = build_parser().parse_args(command[command.index("captioner") + 1 :])
        if "train" in command[:4]:
            recipe = read_recipe(arguments.config, arguments.changes)
            assert recipe.training.seed == 3
            assert recipe.training.precision == recipe.features.precision == "bfloat16"
            # What a config names by itself is what the script puts there.
            plain = read_recipe(arguments.config)
            assert plain.start_from == recipe.start_from
            assert plain.data.validation_annotations == recipe.data.validation_annotations


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
        **{"decoder.dropout": 0.0, "training.epochs": 4, "training.batch_size": 4},
        **{"training.learning_rate": 0.04, "training.warmup_steps": 0, "training.average": 0.5},
        **{"minimum_count": 1, "search.beam": 2},
    }
    arguments = [
        *("--flickr", "flickr", "--everyday", "everyday", "--teachers", "teachers"),
        *("--out", "runs", "--start-from", "random", "--precision", "float32"),
        *(f"--set={field}={value}" for field, value in small.items()),
    ]
    run(data, str(ROOT / "scripts/default_model/build.py"), *arguments)
    model = load_model(data / "runs/confidence/model")
    (caption,) = model.caption([data / "flickr/images/6.jpg"])
    assert caption.words
    assert caption.confidence is not None
    people, every = (
        (data / f"runs/tables/{name}.jsonl").read_text().splitlines() for name in ("people", "all")
    )
    assert len(every) == len(people) + 2 * 3  # Photos without captions, three captions each.
    rewarded = (data / "runs/tables/rewarded.jsonl").read_text().splitlines()
    assert len(rewarded) == len(set(people)) + 4  # Everyday photos to train on have mirror images.
    assert (data / "runs/tables/texts.txt").read_text().splitlines() == list(CAPTIONS)
    photos = ("everyday/photos/2.jpg", "runs/tables/mirrored/mirrored_photos_2.jpg")
    photo, copy = (numpy.asarray(Image.open(data / name)).astype(int) for name in photos)
    assert abs(photo[:, ::-1] - copy).mean() < 3
    eyes = load_model(data / "runs/eyes/model").encoder
    torch.testing.assert_close(
        eyes.state_dict()["features.0.weight"],
        model.encoder.state_dict()["features.0.weight"],
        rtol=1e-3,
        atol=1e-3,
    )
