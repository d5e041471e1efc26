"""`captioner average`."""

from __future__ import annotations

import argparse

from captioner.cli.shared_options import Commands, add_parser
from captioner.errors import UserError

DESCRIPTION = """\
Averages the weights of several models with one configuration and vocabulary:
the last ones of a training run, which keeps as many as training.keep_last says.
A confidence is dropped; fit a new one with captioner calibrate.

  captioner train configs/multi30k_en_de.yaml --set training.keep_last=5
  captioner average runs/multi30k_en_de/models/* --out runs/average
  captioner evaluate-translator runs/average val.en val.de
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "average the weights of models", "MODEL [MODEL ...] --out FOLDER"
    parser = add_parser(commands, "average", summary, DESCRIPTION, usage)
    group = parser.add_argument_group("arguments")
    group.add_argument("models", nargs="+", metavar="MODEL", help="a model folder")
    group.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Average the models into a new folder."""
    if not arguments.out:
        raise UserError("--out is empty; it should name a folder")

    from captioner.model_folders import model_folder
    from captioner.runs.model_average import average_models

    average_models([model_folder(name) for name in arguments.models], arguments.out)
    print(f"{arguments.out}: the mean of the weights of {len(arguments.models)} models")
    return 0
