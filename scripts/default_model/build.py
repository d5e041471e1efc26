"""Rebuild the model in the package, step by step; see README.md beside this file.

Each step is a program, whose command is printed, and has a folder in OUT. A finished step is not
run again; an interrupted one goes on where it stopped; one that was begun with another command is
refused. OUT/last_mean/model is packaged, with the card in captioner/packaged/default.

  python scripts/default_model/build.py --flickr data/flickr8k --everyday data/everyday \\
      --teachers data/teachers --out runs/m

The folder of Flickr8k holds Flickr8k.token.txt, images/, train.txt and val.txt (one photo name a
line); that of the everyday photos captions_train.json and captions_val.json (COCO's format),
photos/, unlabelled/ and text/coco_captions.txt.gz; that of the teachers teachers.py and its
networks. `--start-from random` only tries the steps out.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from photos import folder_parser

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import read_text, write_text

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parents[1] / "configs"


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = folder_parser(__doc__, out="folder of the runs")
    parser.add_argument(
        "--start-from",
        default="imagenet",
        metavar="WEIGHTS",
        help="of the encoder: imagenet (the default), random, a weights file or a model folder",
    )
    parser.add_argument(
        "--go-on", type=Path, metavar="MODEL", help="captioner to go on from, in place of a new one"
    )
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


def commands(inputs: argparse.Namespace) -> dict[str, list[str]]:
    """The arguments of Python of each step, in order."""
    out = inputs.out
    names = ("tables", "teacher_maps", "eyes", "mean", "split", "last_block", "last_mean")
    tables, maps, eyes, mean, split, last_block, last_mean = (out / name for name in names)
    people = tables / "people.jsonl"
    teachers = ["--teachers", inputs.teachers]
    data = ["--flickr", inputs.flickr, "--everyday", inputs.everyday, *teachers]
    data += ["--precision", inputs.precision]
    held_out = [] if inputs.held_out is None else ["--held-out", inputs.held_out]

    def script(name: str, *options: object) -> list[str]:
        return [str(SCRIPTS / name), *map(str, options)]

    def changes(weights: Path, features: object, *more: str) -> list[str]:
        return [
            f"data.annotations={people}",
            f"data.validation_annotations={tables / 'validation.jsonl'}",
            f"data.instances={tables / 'instances.json'}",
            f"encoder.weights={weights}",
            f"features.folder={features}",
            *(f"{section}.precision={inputs.precision}" for section in ("training", "features")),
            *(*more, *inputs.changes),
        ]

    def train(name: str, config: str, changed: list[str]) -> list[str]:
        return [
            *("-m", "captioner", "train", str(CONFIGS / f"{config}.yaml")),
            *(f"--set={change}" for change in changed),
            *("--out", str(out / name)),
        ]

    of_teachers = changes(maps / "stand_in.safetensors", maps / "store")
    start = inputs.go_on or out / "fine_tuning" / "model"
    texts = f"data.texts={tables / 'texts.txt'}"
    of_people = ["--people", people, "--texts", tables / "texts.txt"]
    steps = {
        "tables": script("tables.py", *data, *held_out, "--out", tables),
        "teacher_maps": script(
            *("teacher_features.py", CONFIGS / "default_model.yaml", *teachers),
            *("--scales", maps / "scales.safetensors", "--set", *of_teachers),
        ),
        "words": train("words", "default_model", of_teachers),
        "eyes": script(
            *("distill.py", *data, "--people", people, "--words", out / "words" / "model"),
            *("--scales", maps / "scales.safetensors"),
            *("--start-from", inputs.start_from, "--epochs", 7, "--out", eyes),
        ),
        "fine_tuning": train(
            *("fine_tuning", "default_model_fine_tuning"),
            changes(eyes / "model", out / "people_features", f"start_from={eyes / 'model'}"),
        ),
        "self_critical": train(
            *("self_critical", "default_model_self_critical"),
            changes(
                *(start, out / "features", f"start_from={start}", texts),
                f"data.annotations={tables / 'rewarded.jsonl'}",
            ),
        ),
        "mean": script(
            *("mean.py", start, start, out / "self_critical" / "model", *of_people),
            *("--length-normalisation", 1.8, "--out", mean / "model"),
        ),
        "split": script("split.py", mean / "model", *data, "--epochs", 2, "--out", split),
        "last_block": train(
            *("last_block", "default_model_last_block"),
            changes(split / "model", "null", f"start_from={split / 'model'}"),
        ),
        "last_rewarded": train(
            *("last_rewarded", "default_model_last_rewarded"),
            changes(last_block / "model", "null", f"start_from={last_block / 'model'}", texts),
        ),
        "last_mean": script(
            *("mean.py", split / "model", split / "model", out / "last_rewarded" / "model"),
            *(*of_people, "--length-normalisation", 2.0, "--truth-weight", 0.5),
            *("--out", last_mean / "model"),
        ),
        "confidence": [
            *("-m", "captioner", "calibrate", str(last_mean / "model")),
            *("--format", "table", "--annotations", str(people)),
            *("--split", "flickr", "everyday", "--unsure-below", "0.60"),
            *("--json", str(out / "confidence" / "calibration.json"), "--overwrite"),
        ],
    }
    if inputs.go_on is not None:
        for name in ("teacher_maps", "words", "eyes", "fine_tuning"):
            del steps[name]
    return steps


def run_step(name: str, command: list[str], folder: Path) -> None:
    """Run a step, unless it is finished."""
    begun, done = folder / "command.txt", folder / "done.txt"
    text = shlex.join(command) + "\n"
    if begun.exists() and read_text(begun) != text:
        raise UserError(
            f"step {name} was begun with another command (see {begun}): give those options, "
            f"another --out, or delete {folder}"
        )
    if not done.exists():
        write_text(begun, text)
        resume = ["--resume"] if (folder / "last.safetensors").exists() else []
        print(f"{name}: {shlex.join(command)}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, *command, *resume]).returncode
        if code:
            raise UserError(f"step {name} ended with exit code {code}; see its messages above")
        write_text(done, f"{(time.monotonic() - start) / 60:.0f} minutes\n")
    print(f"{name}: {read_text(done).strip()}", flush=True)


def main() -> None:
    """Build."""
    inputs = parsed()
    for name, command in commands(inputs).items():
        run_step(name, command, inputs.out / name)
    print(f"the model is in {inputs.out / 'last_mean' / 'model'}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
