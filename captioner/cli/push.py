"""`captioner push`."""

from __future__ import annotations

import argparse

from captioner.cli.shared_options import Commands, add_parser

DESCRIPTION = """\
Publishes a captioner or translator on the model hub: weights, config,
vocabulary and card, nothing else. Prints the address that loads this version.

  captioner push runs/coco/model user/name
  captioner push runs/coco user/name --private
  captioner caption photo.jpg --model hf://user/name   to use it

Log in first: hf auth login, or HF_TOKEN. Needs pip install "captioner[hub]".
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "publish a model on the hub", "MODEL NAME [options]"
    parser = add_parser(commands, "push", run, summary, usage, DESCRIPTION)
    given = parser.add_argument_group("input")
    given.add_argument("model", metavar="MODEL", help="a folder, or a packaged model")
    out = parser.add_argument_group("output")
    out.add_argument("name", metavar="NAME", help="user/name of the repository, made if needed")
    out.add_argument("--private", action="store_true", help="only for you and your organisation")


def run(arguments: argparse.Namespace) -> int:
    """Load the model as a check, upload it, print its address."""
    from captioner.caption.folder import load_model
    from captioner.hub import push_model
    from captioner.model_folders import FORMATS, complete_folder, is_of_format, model_folder
    from captioner.translate.translator_folder import load_translator

    folder = complete_folder(model_folder(arguments.model))
    if is_of_format(folder, FORMATS["translator"]):
        load_translator(folder)
    else:
        load_model(folder)
    print(push_model(folder, arguments.name, arguments.private))
    return 0
