"""`captioner features`."""

from __future__ import annotations

import argparse
import json

from captioner.cli.shared_options import Commands, add_machine, add_parser
from captioner.cli.train import add_changes

DESCRIPTION = """\
Computes the annotation vectors of a config's photos and stores them on disk:
200,704 bytes a photo of 224x224. Training does this by itself; do it beforehand
to share a store among runs. A stopped extraction continues where it was. Run
one command a store, since two would compute the same rows; on several GPUs,
torchrun, by which each process takes one and its share of the photos.

  captioner features configs/flickr8k_soft.yaml --out features
  captioner train configs/flickr8k_soft.yaml --set features.folder=features
  torchrun --nproc-per-node 4 -m captioner features configs/coco_soft.yaml
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary = "store the annotation vectors of photos"
    parser = add_parser(commands, "features", summary, DESCRIPTION, "CONFIG [options]")
    given = parser.add_argument_group("input")
    given.add_argument("config", metavar="CONFIG", help="a YAML file, as for training")
    add_changes(given)
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out", metavar="FOLDER", help="the store's folder (default: the config's features.folder)"
    )
    add_machine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fill the stores."""
    from captioner.devices import choose_device
    from captioner.runs.captioning_recipe import read_recipe
    from captioner.runs.features import fill_stores
    from captioner.runs.run import run_engine

    changes = list(arguments.changes)
    if arguments.out is not None:
        # Quoted, so that a folder named 2024 is not read as a number.
        changes.append(f"features.folder={json.dumps(arguments.out, ensure_ascii=False)}")
    recipe = read_recipe(arguments.config, changes)
    with run_engine(choose_device(arguments.device)) as engine:
        for name, store in fill_stores(recipe, engine).items():
            print(f"{name}: {len(store):,} images in {store.folder}")
    return 0
