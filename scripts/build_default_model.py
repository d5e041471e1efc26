"""Rebuild the model in the package, step by step, from Flickr8k and two teacher networks.

Each step is a program of its own, whose command is printed, and leaves its run in a folder of
OUT; a step that is done is not done again, and one that was stopped goes on where it was. What
each step gives on validation photos is printed when it is done.

  python scripts/build_default_model.py --data data/flickr8k --teachers data/teacher --out runs/m
  python scripts/build_default_model.py ... --only eyes words

The data folder holds Flickr8k.token.txt, images/, train.txt and val.txt (one photo name a line);
the folder of the teachers mobilenet_v1_1.0_224.safetensors and mobilenet_v1_0.75_224.safetensors.
OUT/model is what is packaged, with the card in captioner/models/default. OUT/teacher_features and
OUT/self_critical hold annotation vectors, 2.6 GB each. What is in the package came from these steps
but for what its card says of them, so a rebuild gives a model like it, not the same.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import write_text

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parent / "configs"
SCORES = ("block 11", "block 12", "BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D")


@dataclass(frozen=True)
class Step:
    """One step: a name, what it does in a line, and the command, with --resume if it was begun.

    before: a command that comes first, and again whenever the step is not done; it goes on where it
        was stopped without being told.
    """

    name: str
    purpose: str
    command: list[str]
    before: list[str] | None = None


def steps_of(data: Path, teachers: Path, out: Path) -> list[Step]:
    """All steps, in order."""
    photos = ["--photos", str(data / "images")]
    split = ["--train", str(data / "train.txt"), "--validation", str(data / "val.txt")]
    teacher = ["--teacher", str(teachers / "mobilenet_v1_1.0_224.safetensors")]
    classifier = ["--classifier", str(teachers / "mobilenet_v1_0.75_224.safetensors")]
    distil = [sys.executable, str(SCRIPTS / "distill_encoder.py"), *photos, *split, *teacher]
    places = {
        "annotations": data / "Flickr8k.token.txt",
        "images": data / "images",
        "train": data / "train.txt",
        "validation": data / "val.txt",
    }
    read = [f"--set=data.{field}={path}" for field, path in places.items()]

    def train(config: str, *changes: str) -> list[str]:
        given = [f"--set={change}" for change in changes]
        file = str(CONFIGS / f"{config}.yaml")
        return [sys.executable, "-m", "captioner", "train", file, *read, *given]

    features, words, eyes = out / "teacher_features", out / "words", out / "full_eyes"
    stored = [
        f"features.folder={features}",
        f"encoder.weights={features / 'stand_in.safetensors'}",
    ]
    return [
        Step(
            "eyes",
            "a half-width VGG-11 learns the maps of a teacher",
            [*distil, "--width", "0.5", "--epochs", "14", "--learning-rate", "0.002"],
        ),
        Step(
            "wider_eyes",
            "widened to three quarters, it goes on learning, and another teacher's classes as well",
            [
                *(*distil, *classifier, "--width", "0.75", "--start-width", "0.5"),
                *("--start-from", str(out / "eyes" / "encoder.safetensors")),
                *("--epochs", "10", "--learning-rate", "0.001"),
            ],
        ),
        Step(
            "words",
            "a decoder learns to caption what the teacher sees",
            train("default_model", *stored),
            before=[
                *(sys.executable, str(SCRIPTS / "teacher_features.py")),
                *(str(CONFIGS / "default_model.yaml"), *teacher, *read),
                *(f"--set={change}" for change in stored),
            ],
        ),
        Step(
            "full_eyes",
            "at full width, it goes on learning, and to mean the same to that decoder",
            [
                *(*distil, *classifier, "--width", "1.0", "--start-width", "0.75"),
                *("--start-from", str(out / "wider_eyes" / "encoder.safetensors")),
                *("--epochs", "12", "--learning-rate", "0.001"),
                *("--decoder", str(words / "model"), "--captions", str(places["annotations"])),
            ],
        ),
        Step(
            "self_critical",
            "that decoder with these eyes: what is said is held against what people say",
            train(
                "default_model_self_critical",
                *(f"{field}={eyes / 'model'}" for field in ("start_from", "encoder.weights")),
            ),
        ),
    ]


def figures(folder: Path) -> str:
    """The scores of the best validation of a run, from its log."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    judged = [record for record in records if {"CIDEr-D", "mean"} & record.keys()]
    best = max(judged, key=lambda record: float(record.get("CIDEr-D", record.get("mean", 0.0))))
    found = ", ".join(f"{name} {best[name]:.3f}" for name in SCORES if name in best)
    return f"epoch {best['epoch']} of {records[-1]['epoch']}: {found}"


def do(step: Step, out: Path) -> None:
    """Do a step, unless it is done. Raises `UserError` where its program fails."""
    folder = out / step.name
    done = folder / "done.txt"
    print(f"{step.name}: {step.purpose}", flush=True)
    if not done.exists():
        command = [*step.command, "--out", str(folder)]
        if (folder / "last.safetensors").exists():
            command.append("--resume")
        start = time.monotonic()
        for part in (step.before, command):
            if part is None:
                continue
            print("  " + shlex.join(part), flush=True)
            code = subprocess.run(part).returncode
            if code:
                raise UserError(
                    f"step {step.name} ended with exit code {code}; see what it said above"
                )
        write_text(done, f"{(time.monotonic() - start) / 60:.0f} minutes since it was last begun\n")
    print(f"  {figures(folder)}; {done.read_text(encoding='utf-8').strip()}", flush=True)


def main() -> None:
    """Build."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of Flickr8k")
    parser.add_argument("--teachers", type=Path, required=True, help="folder of the teachers")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="these steps only")
    arguments = parser.parse_args()
    steps = steps_of(arguments.data, arguments.teachers, arguments.out)
    names = [step.name for step in steps]
    for name in arguments.only or []:
        if name not in names:
            raise UserError(f"--only {name} is not one of {', '.join(names)}")
    for step in steps:
        if arguments.only is None or step.name in arguments.only:
            do(step, arguments.out)
    last, model = arguments.out / steps[-1].name, arguments.out / "model"
    if (last / "done.txt").exists() and not model.exists():  # It may be a calibrated one.
        shutil.copytree(last / "model", model)
        print(f"the model is in {model}; captioner calibrate gives it its confidence")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
