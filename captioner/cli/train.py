"""`captioner train`."""

from __future__ import annotations

import argparse
from pathlib import Path

from captioner.cli.options import Commands, add_device, add_parser

DESCRIPTION = """\
Trains a captioner as a config says. Every field is documented in captioner/recipes/config.py.

  captioner train configs/shapes_soft.yaml --out runs/shapes
  captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --set data.images=Flicker8k_Dataset
  captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --resume

Ctrl-C and SIGTERM save a checkpoint first; --resume goes on to the same numbers. The best model
so far, by free-running validation, is always in OUT/model:

  captioner caption photo.jpg --model runs/flickr8k/model
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "train", "train a captioner as a config says", DESCRIPTION)
    parser.add_argument("config", metavar="CONFIG", help="a YAML file")
    parser.add_argument(
        "--out", metavar="FOLDER", help="the run's folder (default: runs/ and the config's name)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    add_changes(parser)
    add_device(parser)
    parser.set_defaults(run=run)


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Add --set."""
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="put a value over the config's; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train; stopped by Ctrl-C or SIGTERM, with a checkpoint saved."""
    from captioner.devices import choose_device
    from captioner.recipes.captioning import train_captioner
    from captioner.recipes.config import read_recipe

    recipe = read_recipe(arguments.config, arguments.changes)
    folder = Path(arguments.out or Path("runs") / Path(arguments.config).stem)
    model = train_captioner(recipe, folder, arguments.resume, choose_device(arguments.device))
    print(f"the best model is in {model}")
    return 0
