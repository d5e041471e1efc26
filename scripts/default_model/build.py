"""Rebuild the model in the package, step by step, from Flickr8k and two teacher networks.

Each step is a program of its own, whose command is printed, and leaves its run in a folder of
OUT; a step that is done is not done again, and one that was stopped goes on where it was. What
each step gives on validation photos is printed when it is done. `done.txt` in its folder keeps the
time it took, over all its beginnings, and what was done; where something else is asked for than was
done (another --data, say), that is refused.

  python scripts/default_model/build.py --data data/flickr8k --teachers data/teacher --out runs/m
  python scripts/default_model/build.py ... --only eyes words

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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import atomic_folder, read_json, read_text, real_path, write_bytes, write_text

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parents[1] / "configs"
SCORES = ("block 11", "block 12", "BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D")
RUN, EVALUATION, CALIBRATION = "log.jsonl", "evaluation.json", "calibration.json"
DONE, BEGUN = "done.txt", "begun.txt"
"""In the folder of a step: how long it took, or so far had, in the first line; then what it is."""


@dataclass(frozen=True)
class Step:
    """One step: a name, what it does in a line, and what Python is given to do it, in order.

    commands: the last but for an evaluation is the step's own, which is told --resume where its
        checkpoint is there. The others are done again whenever the step is not done; they go on
        where they were stopped, or are quick.
    copied: a model folder that the step begins by copying into its own, for its command to change.
    """

    name: str
    purpose: str
    commands: list[list[str]]
    copied: Path | None = None


def steps_of(data: Path, teachers: Path, out: Path) -> list[Step]:
    """All steps, in order."""
    photos = ["--photos", str(data / "images")]
    split = ["--train", str(data / "train.txt"), "--validation", str(data / "val.txt")]
    teacher = ["--teacher", str(teachers / "mobilenet_v1_1.0_224.safetensors")]
    classifier = ["--classifier", str(teachers / "mobilenet_v1_0.75_224.safetensors")]
    places = {
        "annotations": data / "Flickr8k.token.txt",
        "images": data / "images",
        "train": data / "train.txt",
        "validation": data / "val.txt",
    }
    read = [f"--set=data.{field}={path}" for field, path in places.items()]
    judged = [
        *("--format", "flickr8k", "--annotations", str(places["annotations"])),
        *("--images", str(places["images"]), "--split", str(places["validation"])),
    ]

    def distil(folder: Path, *options: str) -> list[str]:
        script = str(SCRIPTS / "distill_encoder.py")
        return [script, *photos, *split, *teacher, *options, "--out", str(folder)]

    def train(config: str, folder: Path, *changes: str) -> list[str]:
        given = [f"--set={change}" for change in changes]
        file = str(CONFIGS / f"{config}.yaml")
        return ["-m", "captioner", "train", file, *read, *given, "--out", str(folder)]

    names = ("eyes", "wider_eyes", "words", "full_eyes", "self_critical", "confidence")
    eyes, wider_eyes, words, full_eyes, self_critical, confidence = (out / name for name in names)
    features = out / "teacher_features"
    stored = [
        f"features.folder={features}",
        f"encoder.weights={features / 'stand_in.safetensors'}",
    ]
    return [
        Step(
            "eyes",
            "a half-width VGG-11 learns the maps of a teacher",
            [distil(eyes, "--width", "0.5", "--epochs", "14", "--learning-rate", "0.002")],
        ),
        Step(
            "wider_eyes",
            "widened to three quarters, it goes on learning, and another teacher's classes as well",
            [
                distil(
                    *(wider_eyes, *classifier, "--width", "0.75", "--start-width", "0.5"),
                    *("--start-from", str(eyes / "encoder.safetensors")),
                    *("--epochs", "10", "--learning-rate", "0.001"),
                )
            ],
        ),
        Step(
            "words",
            "a decoder learns to caption what the teacher sees",
            [
                [
                    *(str(SCRIPTS / "teacher_features.py"), str(CONFIGS / "default_model.yaml")),
                    *(*teacher, *read, *(f"--set={change}" for change in stored)),
                ],
                train("default_model", words, *stored),
            ],
        ),
        Step(
            "full_eyes",
            "at full width, it goes on learning, and to mean the same to that decoder",
            [
                distil(
                    *(full_eyes, *classifier, "--width", "1.0", "--start-width", "0.75"),
                    *("--start-from", str(wider_eyes / "encoder.safetensors")),
                    *("--epochs", "12", "--learning-rate", "0.001"),
                    *("--decoder", str(words / "model"), "--captions", str(places["annotations"])),
                ),
                [
                    *("-m", "captioner", "evaluate", str(full_eyes / "model")),
                    *(*judged, "--json", str(full_eyes / EVALUATION)),
                ],
            ],
        ),
        Step(
            "self_critical",
            "that decoder with these eyes: what is said is held against what people say",
            [
                train(
                    *("default_model_self_critical", self_critical),
                    *(
                        f"{name}={full_eyes / 'model'}"
                        for name in ("start_from", "encoder.weights")
                    ),
                )
            ],
        ),
        Step(
            "confidence",
            "a copy of it learns how far its captions are to be trusted",
            [
                [
                    *("-m", "captioner", "calibrate", "--model", str(confidence / "model")),
                    *(*judged, "--training-split", str(places["train"])),
                    *("--training-photos", "1000"),
                    *("--json", str(confidence / CALIBRATION)),
                ]
            ],
            copied=self_critical / "model",
        ),
    ]


def of_run(file: Path) -> str:
    """The scores of the best validation of a run, from its log.

    Raises `UserError` where there is no log, or one without scores.
    """
    records = []
    for number, line in enumerate(read_text(file, "run log").splitlines(), start=1):
        try:
            records.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            raise UserError(f"run log {file}: line {number} is not a record in JSON") from None
    judged = [record for record in records if {"CIDEr-D", "mean"} & record.keys()]
    if not judged:
        raise UserError(f"run log {file} has no scores of validation photos")
    try:
        best = max(judged, key=lambda record: float(record.get("CIDEr-D", record.get("mean"))))
        found = ", ".join(f"{name} {best[name]:.3f}" for name in SCORES if name in best)
        return f"epoch {best['epoch']} of {records[-1]['epoch']}: {found}"
    except (KeyError, TypeError, ValueError):
        raise UserError(f"run log {file} has scores that are not numbers of an epoch") from None


def of_evaluation(file: Path) -> str:
    """What `captioner evaluate --json` wrote. Raises `UserError` as `read_json` does."""
    scores = read_json(file, "scores")
    return "captions with these eyes: " + _shown(file, lambda: _named(scores))


def of_calibration(file: Path) -> str:
    """What `captioner calibrate --json` wrote. Raises `UserError` as `read_json` does."""
    found = read_json(file, "calibration")
    return _shown(
        file,
        lambda: (
            f"confidence {found['photos']['confidence']:.3f} where {found['observed']:.3f} were, "
            f"expected calibration error {found['reliability']['error']:.3f}, "
            f"not sure of {found['photos']['unsure']:.1%} of photos"
        ),
    )


def _named(scores: Any) -> str:
    return ", ".join(f"{name} {scores[name]:.3f}" for name in ("BLEU-4", "CIDEr-D"))


def _shown(file: Path, show: Callable[[], str]) -> str:
    try:
        return show()
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{file} does not hold the figures of this step") from None


FIGURES = {RUN: of_run, EVALUATION: of_evaluation, CALIBRATION: of_calibration}
"""What reads each kind of file that a step leaves its figures in."""


def figures(step: Step, folder: Path) -> str:
    """What a step gave on validation photos. Raises `UserError` where it left no such figures."""
    files = [RUN] if step.copied is None else []
    written = [Path(command[-1]).name for command in step.commands if "--json" in command]
    return "; ".join(FIGURES[name](folder / name) for name in files + written)


def described(step: Step) -> str:
    """What a step does, in lines, whatever Python does it and wherever the repository lies."""
    root = str(SCRIPTS.parents[1])
    lines = [shlex.join(command).replace(f"{root}/", "") for command in step.commands]
    return "\n".join(lines) + "\n"


def copy_model(source: Path, target: Path) -> None:
    """Copy a model folder, whole or not at all. Raises `UserError` where that cannot be done."""
    if not source.is_dir():
        raise UserError(f"model folder {source} does not exist")
    with atomic_folder(target) as temporary:
        for file in sorted(path for path in source.iterdir() if path.is_file()):
            write_bytes(temporary / file.name, file.read_bytes())


def time_of(step: Step, wanted: Step, record: Path) -> str:
    """How long a step took, from its record, whose first line says it.

    wanted: the step with the whole paths of data and teachers, and `OUT` for the folder of runs.
    Raises `UserError` where the record is of something else than what is wanted.
    """
    first, _, recorded = read_text(record, "record of a step").partition("\n")
    if not recorded:
        raise UserError(
            f"{record} does not say what was done; delete it, and the step goes on where it was"
        )
    if recorded != described(wanted):
        raise UserError(
            f"step {step.name} was {record.stem} with other data, teachers or settings than are "
            f"asked for now (see {record}); give those, another --out, or delete {record.parent}"
        )
    return first


def do(step: Step, wanted: Step, out: Path) -> None:
    """Do a step, unless it is done.

    wanted: as `time_of` takes it; what is recorded. Time is added up over all beginnings, but for
    what a kill that no program can catch cuts off.
    Raises `UserError` where its program fails, and where another such step was begun or done.
    """
    folder = out / step.name
    done, begun = folder / DONE, folder / BEGUN
    print(f"{step.name}: {step.purpose}", flush=True)
    if not done.exists():
        before = 0.0
        if begun.exists():
            had = time_of(step, wanted, begun)
            try:
                before = float(had.removesuffix(" seconds"))
            except ValueError:
                raise UserError(f"{begun} begins with {had!r}, which are no seconds") from None
        start = time.monotonic()
        spent = before
        write_text(begun, f"{spent:.1f} seconds\n{described(wanted)}")
        try:
            run_commands(step, folder)
        finally:
            spent = before + time.monotonic() - start
            write_text(begun, f"{spent:.1f} seconds\n{described(wanted)}")
        figures(step, folder)  # A step that leaves none is not done.
        write_text(done, f"{spent / 60:.0f} minutes\n{described(wanted)}")
        begun.unlink()
    taken = time_of(step, wanted, done)
    print(f"  {figures(step, folder)}; {taken}", flush=True)


def run_commands(step: Step, folder: Path) -> None:
    """Run what a step consists of. Raises `UserError` where a program fails."""
    if step.copied is not None:
        if not (step.copied.parent / DONE).is_file():  # Of one under way it is the best so far.
            raise UserError(f"step {step.name} needs the model of step {step.copied.parent.name}")
        # What a stopped calibration leaves may be half changed.
        shutil.rmtree(folder / "model", ignore_errors=True)
        copy_model(step.copied, folder / "model")
    for command in step.commands:
        part = [sys.executable, *command]
        if "--out" in part and (folder / "last.safetensors").exists():
            part.append("--resume")
        print("  " + shlex.join(part), flush=True)
        code = subprocess.run(part).returncode
        if code:
            raise UserError(f"step {step.name} ended with exit code {code}; see what it said above")


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
    whole = (Path(real_path(folder)) for folder in (arguments.data, arguments.teachers))
    recorded = steps_of(*whole, Path("OUT"))
    names = [step.name for step in steps]
    for name in arguments.only or []:
        if name not in names:
            raise UserError(f"--only {name} is not one of {', '.join(names)}")
    for step, wanted in zip(steps, recorded, strict=True):
        if arguments.only is None or step.name in arguments.only:
            do(step, wanted, arguments.out)
    last, model = arguments.out / steps[-1].name, arguments.out / "model"
    if not (last / DONE).exists():
        return
    if model.is_dir() and any(model.iterdir()):  # Someone may have given it a card.
        print(f"the model is in {model}, as it was")
        return
    copy_model(last / "model", model)
    print(f"the model is in {model}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
