"""`captioner info`."""

from __future__ import annotations

import argparse

from captioner.cli.shared_options import Commands, add_parser

DESCRIPTION = """\
Describes a captioner or translator: its parts, its size, its model card.

  captioner info                 the packaged captioner
  captioner info english_german  the packaged translator into German
  captioner info runs/coco/model
  captioner info hf://user/name  a model of the hub, with its revision
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "info", run, "describe a model", "[MODEL]", DESCRIPTION)
    about = "a folder, a packaged model or hf://user/name (default: %(default)s)"
    given = parser.add_argument_group("input")
    given.add_argument("model", nargs="?", default="default", metavar="MODEL", help=about)


def run(arguments: argparse.Namespace) -> int:
    """Print the description."""
    from captioner.caption.folder import describe, load_model
    from captioner.hub import is_address, pinned
    from captioner.model_folders import FORMATS, is_of_format, model_folder
    from captioner.translate.translator_folder import describe_translator, load_translator

    name = pinned(arguments.model)
    folder = model_folder(name)
    if is_of_format(folder, FORMATS["translator"]):
        description = describe_translator(load_translator(folder), folder)
    else:
        description = describe(load_model(folder), folder)
    if is_address(name):
        print(f"revision       {name}")
    print(description)
    return 0
