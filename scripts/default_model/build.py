"""Rebuild the model in the package, step by step.

Each step is a program, whose command is printed, and leaves its run in a folder of OUT. A step that
is done is not done again; one that was stopped goes on where it was. What each step gave on
validation photos is printed when it is done. In its folder `command.txt` keeps what was begun, and
`done.txt` how long it took since it was last begun; another command than that is refused.

  python scripts/default_model/build.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --out runs/m

The folder of Flickr8k holds Flickr8k.token.txt, images/, train.txt and val.txt (one photo name a
line); that of the everyday photos captions_train.json and captions_val.json (COCO's format),
photos/, unlabelled/ and text/coco_captions.txt.gz; that of the teachers teachers.py and its
networks. OUT/features and OUT/teacher_maps hold annotation vectors, 200 kB a photo.
OUT/confidence/model is packaged, with the card in captioner/models/default.

`--go-on MODEL` leaves out the steps between `tables` and `self_critical`, and goes on from a
captioner: the packaged model went on from that of version 0.2. `--start-from random` only tries
the steps out.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from photos import folder_parser
from teachers import SCALES

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import read_text, write_text
from captioner.vision.encoders import IMAGENET

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parents[1] / "configs"
SCORES = (
    *("Flickr8k block 10", "Flickr8k block 15"),
    *("everyday block 10", "everyday block 15", "everyday things"),
    *("BLEU-4", "CIDEr-D"),
)
LOG, EVALUATION, CALIBRATION = "log.jsonl", "evaluation.json", "calibration.json"


@dataclass(frozen=True)
class Step:
    """A step: its name, its purpose in a line, and the command of Python that does it.

    command: one with --out is told --resume where the step's checkpoint is there.
    figures: a file in the step's folder.
    copied: a model folder that the step first copies into its own, for its command to change.
    """

    name: str
    purpose: str
    command: list[str]
    figures: str = LOG
    copied: Path | None = None


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the model is made from."""
    parser = folder_parser(__doc__, teachers="folder of the teachers", out="folder of the runs")
    parser.add_argument(
        "--start-from",
        default=IMAGENET,
        metavar="WEIGHTS",
        help="of the eyes: imagenet (the default), random, a weights file or a model folder",
    )
    parser.add_argument("--go-on", type=Path, metavar="MODEL", help="captioner to go on from")
    parser.add_argument(
        "--held-out", type=Path, metavar="FILE", help="COCO captions that nothing is learned from"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="FIELD=VALUE",
        help="change a field of the decoder's configs; may be repeated",
    )
    return parser.parse_args(arguments)


def steps_of(inputs: argparse.Namespace) -> list[Step]:
    """All steps, in order."""
    out = inputs.out
    tables, maps, words, eyes, fine_tuning, self_critical, mean, confidence = (
        out / name
        for name in (
            *("tables", "teacher_maps", "words", "eyes", "fine_tuning"),
            *("self_critical", "mean", "confidence"),
        )
    )
    teachers = ["--teachers", inputs.teachers]
    data = ["--flickr", inputs.flickr, "--everyday", inputs.everyday, *teachers]
    data += ["--precision", inputs.precision]
    held_out = [] if inputs.held_out is None else ["--held-out", inputs.held_out]

    def script(name: str, *options: object) -> list[str]:
        return [str(SCRIPTS / name), *map(str, options)]

    def changes(weights: Path, features: Path, *more: str, table: str = "people") -> list[str]:
        return [
            f"data.annotations={tables / table}.jsonl",
            f"data.validation_annotations={tables / 'validation.jsonl'}",
            f"data.instances={tables / 'instances.json'}",
            f"encoder.weights={weights}",
            f"features.folder={features}",
            *(f"{section}.precision={inputs.precision}" for section in ("training", "features")),
            *(*more, *inputs.changes),
        ]

    def train(folder: Path, config: str, changed: list[str]) -> list[str]:
        return [
            *("-m", "captioner", "train", str(CONFIGS / f"{config}.yaml")),
            *(f"--set={change}" for change in changed),
            *("--out", str(folder)),
        ]

    of_teachers = changes(maps / "stand_in.safetensors", maps / "store")
    from_scratch = [
        Step(
            "teacher_maps",
            "what the teachers see in people's photos is stored",
            script(
                *("teacher_features.py", CONFIGS / "default_model.yaml", *teachers),
                *("--scales", tables / SCALES, "--set", *of_teachers),
            ),
            "",
        ),
        Step(
            "words",
            "a decoder learns to caption what the teachers see",
            train(words, "default_model", of_teachers),
        ),
        Step(
            "eyes",
            "a VGG-11 learns to see what they see, and that decoder to say the same of it",
            script(
                *("distill.py", *data, "--tables", tables, "--words", words / "model"),
                *("--start-from", inputs.start_from, "--epochs", 7, "--out", eyes),
            ),
        ),
        Step(
            "fine_tuning",
            "the decoder goes on with what these eyes see and with people's captions",
            train(
                *(fine_tuning, "default_model_fine_tuning"),
                changes(
                    *(eyes / "model", out / "people_features", f"start_from={eyes / 'model'}"),
                ),
            ),
        ),
    ]
    start = inputs.go_on or fine_tuning / "model"
    return [
        Step(
            "tables",
            "captions are retrieved for photos without captions",
            script("tables.py", *data, *held_out, "--out", tables),
            EVALUATION,
        ),
        *(from_scratch if inputs.go_on is None else []),
        Step(
            "self_critical",
            "its own captions are rewarded by CIDEr-D, true words and fluency",
            train(
                *(self_critical, "default_model_self_critical"),
                changes(
                    *(start, out / "features", f"start_from={start}"),
                    f"data.texts={tables / 'texts.txt'}",
                    table="rewarded",
                ),
            ),
        ),
        Step(
            "mean",
            "the mean with its start, which counts twice; rare words go, trigrams are known",
            script(
                *("mean.py", start, start, self_critical / "model"),
                *("--people", tables / "people.jsonl", "--texts", tables / "texts.txt"),
                *("--length-normalisation", 1.8, "--out", mean / "model"),
            ),
            "",
        ),
        Step(
            "confidence",
            "a copy of it gets a confidence, calibrated on both worlds",
            [
                *("-m", "captioner", "calibrate", str(confidence / "model")),
                *("--format", "table", "--annotations", str(tables / "people.jsonl")),
                *("--split", "flickr", "everyday", "--unsure-below", "0.53"),
                *("--json", str(confidence / CALIBRATION)),
            ],
            CALIBRATION,
            mean / "model",
        ),
    ]


def figures(file: Path) -> str:
    """What a step gave on validation photos, from the log of a run or the scores of a command."""
    if file.name == LOG:
        records = [json.loads(line) for line in read_text(file, "run log").splitlines()]
        judged = [record for record in records if {"CIDEr-D", "mean"} & record.keys()]
        best = max(judged, key=lambda record: record.get("ROUGE-L", record.get("mean", 0)))
        found = ", ".join(f"{name} {best[name]:.3f}" for name in SCORES if name in best)
        return f"epoch {best['epoch']} of {records[-1]['epoch']}: {found}"
    scores = json.loads(read_text(file, "scores"))
    if file.name == EVALUATION:
        names = ("BLEU-4", "CIDEr-D", "word-precision", "captions with none")
        return ", ".join(f"{name} {scores[name]:.3f}" for name in names)
    return "; ".join(
        f"{name}: confidence {split['expected']:.3f} where {split['observed']:.3f} is true, "
        f"not sure of {split['unsure']:.1%} of photos"
        for name, split in scores["splits"].items()
    )


def do(step: Step, folder: Path) -> None:
    """Do a step in its folder, unless it is done.

    Raises `UserError` where its program fails, and where it was begun with another command.
    """
    print(f"{step.name}: {step.purpose}", flush=True)
    begun, done = folder / "command.txt", folder / "done.txt"
    command = shlex.join(step.command) + "\n"
    if begun.exists() and read_text(begun) != command:
        raise UserError(
            f"step {step.name} was begun with other data, teachers or settings than are asked for "
            f"now (see {begun}); give those, another --out, or delete {folder}"
        )
    if not done.exists():
        write_text(begun, command)
        start = time.monotonic()
        run_command(step, folder)
        write_text(done, f"{(time.monotonic() - start) / 60:.0f} minutes\n")
    shown = [figures(folder / step.figures)] if step.figures else []
    print("  " + "; ".join([*shown, read_text(done).strip()]), flush=True)


def run_command(step: Step, folder: Path) -> None:
    """Run what a step consists of. Raises `UserError` where a program fails."""
    if step.copied is not None:
        # What a stopped calibration leaves may be half changed.
        shutil.rmtree(folder / "model", ignore_errors=True)
        shutil.copytree(step.copied, folder / "model")
    command = [sys.executable, *step.command]
    if "--out" in command and (folder / "last.safetensors").exists():
        command.append("--resume")
    print("  " + shlex.join(command), flush=True)
    code = subprocess.run(command).returncode
    if code:
        raise UserError(f"step {step.name} ended with exit code {code}; see what it said above")


def main() -> None:
    """Build."""
    inputs = parsed()
    for step in steps_of(inputs):
        do(step, inputs.out / step.name)
    print(f"the model is in {inputs.out / step.name / 'model'}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
