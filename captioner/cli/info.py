"""`captioner info`."""

from __future__ import annotations

import argparse

from captioner.cli.options import Commands, add_parser

DESCRIPTION = """\
Says what a model is: its parts, its size, its preprocessing, its model card.

  captioner info                 the packaged model
  captioner info runs/coco/model
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "info", "say what a model is", DESCRIPTION)
    parser.add_argument(
        "model", nargs="?", default="default", metavar="MODEL", help="a folder or a packaged model"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the description."""
    from captioner.caption.description import describe
    from captioner.models import load, model_folder

    print(describe(load(arguments.model), model_folder(arguments.model)))
    return 0
