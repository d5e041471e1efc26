"""`captioner train`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from captioner.cli.shared_options import Commands, Group, add_machine, add_parser, refuse

DESCRIPTION = """\
Trains the captioner of a config or, with `task: translate`, the translator. docs/configuration.md
documents every field. A table of photos and captions adapts a model to them.

  captioner train mine.csv --start-from default --out runs/mine
  captioner train configs/shapes_soft.yaml --out runs/shapes
  captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --set data.images=Flicker8k_Dataset
  captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --resume
  captioner train configs/numbers.yaml --out runs/numbers

Ctrl-C and SIGTERM save a checkpoint first; --resume continues bit for bit. OUT/model always holds
the best model so far, by validation on generated captions:

  captioner caption photo.jpg --model runs/flickr8k/model

On several GPUs, each process takes one and its share of every batch; on several machines, give
torchrun --nnodes, --node-rank and --master-addr as well, and an OUT on a disk that they share:

  torchrun --nproc-per-node 8 -m captioner train configs/coco_soft.yaml --out runs/coco
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary = "train a captioner or a translator"
    parser = add_parser(commands, "train", summary, DESCRIPTION, "CONFIG [options]")
    given = parser.add_argument_group("input")
    given.add_argument(
        "config", metavar="CONFIG", help="a YAML file; or a .csv, .tsv or .jsonl table"
    )
    add_changes(given)
    given.add_argument(
        "--start-from",
        metavar="MODEL",
        help="initial weights, words and sizes: a packaged model, or the folder of a model or run",
    )
    given.add_argument(
        "--encoder",
        metavar="NAME",
        help="an encoder with its published weights, downloaded on first use: vgg11, vgg13, vgg16, "
        "vgg19, each also with _bn, timm/NAME or torchvision/NAME; stored annotation vectors then "
        "lie in OUT",
    )
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out", metavar="FOLDER", help="the run's folder (default: runs/ and the config's name)"
    )
    out.add_argument("--resume", action="store_true", help="continue the run in the folder")
    add_machine(parser)
    parser.set_defaults(run=run)


def add_changes(group: Group) -> None:
    """Add --set."""
    group.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="override a field of the config; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train."""
    from captioner.data.table import SUFFIXES
    from captioner.devices import choose_device
    from captioner.runs.read_recipe import read_any_recipe
    from captioner.runs.run import train_run

    changes = arguments.changes
    if arguments.start_from is not None:
        changes = [f"start_from={json.dumps(arguments.start_from, ensure_ascii=False)}", *changes]
    if arguments.encoder is not None:
        if Path(arguments.config).suffix.lower() in SUFFIXES:
            refuse(arguments, ["encoder"], "for a table, whose encoder is that of --start-from")
        # Sizes and stored annotation vectors of the config belong to the encoder it names.
        changes = [_encoder_change(arguments), "features.folder=null", *changes]
    recipe = read_any_recipe(arguments.config, changes)
    folder = Path(arguments.out or Path("runs") / Path(arguments.config).stem)
    train_run(recipe, folder, arguments.resume, choose_device(arguments.device))
    return 0


def _encoder_change(arguments: argparse.Namespace) -> str:
    """Replaces the config's encoder; fields that every family has keep their values."""
    from captioner.runs.captioning_recipe import EncoderRecipe, read_mapping

    mapping = read_mapping(arguments.config)
    old = mapping.get("encoder") if isinstance(mapping, dict) else None
    fields = old.items() if isinstance(old, dict) else ()
    kept = {name: value for name, value in fields if name in EncoderRecipe.model_fields}
    new = {**kept, "name": arguments.encoder, "weights": "pretrained"}
    return f"encoder={json.dumps(new, default=str)}"
