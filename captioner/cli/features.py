"""`captioner features`."""

from __future__ import annotations

import argparse

from captioner.cli.options import Commands, add_device, add_parser
from captioner.cli.train import add_changes

DESCRIPTION = """\
Computes the annotation vectors of a config's photos, once, and stores them on disk: 200,704 bytes
a photo of 224x224. Training does this by itself; do it beforehand to share a store among runs.
A stopped extraction goes on where it was.

  captioner features configs/flickr8k_soft.yaml --out features/flickr8k
  captioner train configs/flickr8k_soft.yaml --set features.folder=features/flickr8k
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "features", "store the annotation vectors of photos", DESCRIPTION)
    parser.add_argument("config", metavar="CONFIG", help="a YAML file, as for training")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the store's folder")
    add_changes(parser)
    add_device(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fill the store, or go on filling it."""
    from captioner.devices import choose_device
    from captioner.recipes.captioning import store_recipe_features
    from captioner.recipes.config import read_recipe

    recipe = read_recipe(arguments.config, [*arguments.changes, f"features.folder={arguments.out}"])
    stores = store_recipe_features(recipe, choose_device(arguments.device))
    for name, store in stores.items():
        print(f"{name}: {len(store):,} images in {store.folder}")
    return 0
