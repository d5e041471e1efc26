"""`captioner train` and `captioner features`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from captioner.cli import shared_options as shared
from captioner.errors import UserError

DESCRIPTION = """\
Trains the captioner of a config or, with `task: translate`, the translator. docs/configuration.md
documents every field. Photos and captions adapt a model to them: a table, a folder of photos
with texts (photo.txt), metadata.jsonl or descriptions, or a file of COCO or Karpathy.

  captioner train mine.csv --start-from default --out runs/mine
  captioner train 'shards/{00000..00009}.tar' --start-from default --out runs/mine
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

FEATURES_DESCRIPTION = """\
Computes the annotation vectors of a config's photos and stores them on disk:
200,704 bytes a photo of 224x224. Training does this by itself; do it beforehand
to share a store among runs. A stopped extraction continues where it was. Run
one command a store, since two would compute the same rows; on several GPUs,
torchrun, by which each process takes one and its share of the photos.

  captioner features configs/flickr8k_soft.yaml --out features
  captioner train configs/flickr8k_soft.yaml --set features.folder=features
  torchrun --nproc-per-node 4 -m captioner features configs/coco_soft.yaml
"""


def add_commands(commands: shared.Commands) -> None:
    """Add both commands to the command line."""
    summary, usage = "train a captioner or a translator", "CONFIG [options]"
    parser = shared.add_parser(commands, "train", run, summary, usage, DESCRIPTION)
    given = _add_config(
        parser, "a YAML file; or photos and captions: a table, a folder, shards, a JSON file"
    )
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
    about = "the run's folder (default: runs/ and the config's name)"
    out.add_argument("--out", metavar="FOLDER", help=about)
    out.add_argument("--resume", action="store_true", help="continue the run in the folder")
    shared.add_machine(parser)

    summary = "store the annotation vectors of photos"
    parser = shared.add_parser(
        commands, "features", run_features, summary, usage, FEATURES_DESCRIPTION
    )
    _add_config(parser, "a YAML file, as for training")
    about = "the store's folder (default: the config's features.folder)"
    parser.add_argument_group("output").add_argument("--out", metavar="FOLDER", help=about)
    shared.add_machine(parser)


def _add_config(parser: argparse.ArgumentParser, about: str) -> shared.Group:
    """Add the group of CONFIG and --set."""
    group = parser.add_argument_group("input")
    group.add_argument("config", metavar="CONFIG", help=about)
    group.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="override a field of the config; may be repeated",
    )
    return group


def run(arguments: argparse.Namespace) -> int:
    """Train."""
    from captioner.data.readers import format_of
    from captioner.devices import choose_device
    from captioner.runs.read_recipe import read_any_recipe
    from captioner.runs.run import train_run

    config, changes = Path(arguments.config), arguments.changes
    if arguments.start_from is not None:
        changes = [_change("start_from", arguments.start_from), *changes]
    if arguments.encoder is not None:
        if format_of(config) is not None:
            raise UserError(f"--encoder: the encoder for {config} is that of --start-from")
        # Sizes and stored annotation vectors of the config belong to the encoder it names.
        changes = [_encoder_change(arguments), "features.folder=null", *changes]
    recipe = read_any_recipe(arguments.config, changes)
    folder = Path(arguments.out or Path("runs") / config.resolve().stem)
    train_run(recipe, folder, arguments.resume, choose_device(arguments.device))
    return 0


def run_features(arguments: argparse.Namespace) -> int:
    """Fill the stores."""
    from captioner.devices import choose_device
    from captioner.runs.features import extract_features
    from captioner.runs.read_recipe import read_recipe
    from captioner.training.distributed import Engine

    changes = list(arguments.changes)
    if arguments.out is not None:
        changes.append(_change("features.folder", arguments.out))
    recipe = read_recipe(arguments.config, changes)
    with Engine(choose_device(arguments.device)) as engine:
        extract_features(recipe, engine)
    return 0


def _change(field: str, value: object) -> str:
    """A change of the config; quoted, so that a folder named 2024 is not read as a number."""
    return f"{field}={json.dumps(value, ensure_ascii=False, default=str)}"


def _encoder_change(arguments: argparse.Namespace) -> str:
    """Replaces the config's encoder; fields that every family has keep their values."""
    from captioner.runs.captioning_recipe import EncoderRecipe
    from captioner.runs.read_recipe import read_mapping

    mapping = read_mapping(arguments.config)
    old = mapping.get("encoder") if isinstance(mapping, dict) else None
    fields = old.items() if isinstance(old, dict) else ()
    kept = {name: value for name, value in fields if name in EncoderRecipe.model_fields}
    return _change("encoder", {**kept, "name": arguments.encoder, "weights": "pretrained"})
