"""The steps towards the packaged captioner, and the build that makes them in order."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from samples import Patch
from scripts_samples import ROOT

from captioner.cli.main import build_parser
from captioner.errors import UserError
from captioner.runs.read_recipe import read_recipe
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig

FOLDERS = [
    *("--flickr", "data/flickr8k", "--everyday", "data/everyday"),
    *("--teachers", "data/teachers"),
]


@pytest.fixture
def script(import_scripts: None) -> ModuleType:
    import build

    return build


@pytest.fixture
def begun(monkeypatch: Patch, script: ModuleType, tmp_path: Path) -> list[list[str]]:
    """The commands of the programs that are run; in their place training leaves a checkpoint."""
    commands: list[list[str]] = []

    def run(command: list[str]) -> SimpleNamespace:
        commands.append(command)
        if "train" in command:
            (Path(command[command.index("--out") + 1]) / "last.safetensors").touch()
        return SimpleNamespace(returncode=1 if len(commands) == 3 else 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("sys.argv", ["build", *FOLDERS, "--out", str(tmp_path)])
    return commands


def test_steps_are_done_in_order_and_go_on_where_one_stopped(
    script: ModuleType, begun: list[list[str]], monkeypatch: Patch
) -> None:
    with pytest.raises(UserError, match="step words ended with exit code 1"):
        script.main()
    script.main()
    names = [command[3] if command[1] == "-m" else Path(command[1]).stem for command in begun]
    steps = ["tables", "teacher_features", "train", "train", "distill", "train"]
    assert names == [*steps, "train", "mean", "split", "train", "train", "mean", "calibrate"]
    assert begun[3] == [*begun[2], "--resume"]
    script.main()
    monkeypatch.setattr("sys.argv", [*sys.argv, "--everyday", "nowhere"])
    with pytest.raises(UserError, match="step tables was begun with another command"):
        script.main()
    assert len(begun) == len(names)


def test_steps_go_on_from_what_earlier_ones_leave(script: ModuleType, monkeypatch: Patch) -> None:
    monkeypatch.chdir(ROOT)
    options = [*FOLDERS, "--out", "runs/default_model", "--set=training.seed=3"]
    left = {"features", "people_features"}  # Made on the way.
    for name, command in script.commands(script.parsed(options)).items():
        places = [part.split("=")[-1].split("/") for part in command]
        left.add(name)
        assert {place[2] for place in places if place[:2] == ["runs", "default_model"]} <= left
        if "captioner" in command:
            arguments = build_parser().parse_args(command[command.index("captioner") + 1 :])
        if "train" in command[:4]:
            recipe = read_recipe(arguments.config, arguments.changes)
            assert recipe.training.seed == 3
            # What a config names by itself is what the script puts there.
            plain = read_recipe(arguments.config)
            assert (plain.start_from, plain.data) == (recipe.start_from, recipe.data)
    names = script.commands(script.parsed([*options, "--go-on", "default"]))
    last = ["last_block", "last_rewarded", "last_mean", "confidence"]
    assert list(names) == ["tables", "self_critical", "mean", "split", *last]


def test_words_that_people_keep_apart() -> None:
    from mean import clashes

    vocabulary = Vocabulary(["a", "man", "woman", "bike", "bicycle", "surfboard", "snow"])
    texts = ["a man bike", "a woman bicycle", "a man surfboard", "a woman snow", "a man woman"]
    texts += ["a man bike bicycle"]
    captions = [text.split() for text in texts * 20 + texts[:2] * 700]
    found = clashes(captions, vocabulary).tolist()
    apart = {vocabulary.words[a] + " " + vocabulary.words[b] for a, _, _, b in found}
    # A thirtieth of the bikes have a bicycle. Nobody put snow and surfboards together: by chance.
    assert {"bike bicycle", "woman bike", "snow man", "surfboard woman"} < apart
    assert not apart & {"man bike", "man woman", "snow surfboard", "a surfboard"}
    assert apart == {" ".join(pair.split()[::-1]) for pair in apart}
    assert {token for clash in found for token in clash[1:3]} == {vocabulary.start}


def test_a_split_encoder_begins_as_the_best_of_its_rank() -> None:
    import split as script

    torch.manual_seed(0)
    whole = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.1, context=(2,))).eval()
    photos = torch.randint(256, (12, 3, 64, 64), dtype=torch.uint8)
    split = script.split_encoder(whole, photos)
    assert split.config == VGGConfig(name="vgg11", width=0.1, context=(2,), rank=0.5)
    folded = whole.for_inference(torch.float32)
    vectors = folded.encode(photos[:4].float() / 255)  # (4, L, D)
    deviation = vectors.std(dim=(0, 1)).clamp(min=1e-3)  # (D,)
    pupil = script.Pupil(split, folded, deviation)
    assert script.kept(pupil, photos) > 0.99
