"""`captioner export`, `captioner push` and `captioner info`: what is done with a whole model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli import shared_options as shared

if TYPE_CHECKING:
    from captioner.caption.captioner import Captioner
    from captioner.translate.translator import Translator

EXPORT_DESCRIPTION = """\
Writes a captioner as ONNX graphs, which run without torch.

  captioner export default onnx/                              float32, 61 MB
  captioner export runs/coco/model onnx/ --precision float16
  captioner export default page/ --precision int8 --page      a web page, 30 MB

In Python: captioner.onnx.load("onnx/").caption("photo.jpg"). The page needs a
web server for its files and nothing else: photos stay in the browser.
"""

PUSH_DESCRIPTION = """\
Publishes a captioner or translator on the model hub: weights, config,
vocabulary and card, nothing else. Prints the address that loads this version.

  captioner push runs/coco/model user/name
  captioner push runs/coco user/name --private
  captioner caption photo.jpg --model hf://user/name   to use it

Log in first: hf auth login, or HF_TOKEN. Needs pip install "captioner[hub]".
"""

INFO_DESCRIPTION = """\
Describes a captioner or translator: its parts, its size, its model card.

  captioner info                 the packaged captioner
  captioner info english_german  the packaged translator into German
  captioner info runs/coco/model
  captioner info hf://user/name  a model of the hub, with its revision
"""


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    summary, usage = "write a captioner as ONNX graphs", "MODEL FOLDER [options]"
    parser = shared.add_parser(commands, "export", run_export, summary, usage, EXPORT_DESCRIPTION)
    given = parser.add_argument_group("input and output")
    given.add_argument("model", metavar="MODEL", help="a model folder or name")
    given.add_argument("folder", metavar="FOLDER", help="the folder to write")
    given.add_argument(
        "--precision",
        choices=("float32", "float16", "int8"),
        default="float32",
        help="in which large weights are stored; all arithmetic is float32 (default: %(default)s)",
    )
    about = "add a page that captions photos in the browser; fetches onnxruntime-web by npm"
    given.add_argument("--page", action="store_true", help=about)
    shared.add_overwrite(given, "files of FOLDER")

    summary, usage = "publish a model on the hub", "MODEL NAME [options]"
    parser = shared.add_parser(commands, "push", run_push, summary, usage, PUSH_DESCRIPTION)
    given = parser.add_argument_group("input")
    given.add_argument("model", metavar="MODEL", help="a folder, or a packaged model")
    out = parser.add_argument_group("output")
    out.add_argument("name", metavar="NAME", help="user/name of the repository, made if needed")
    out.add_argument("--private", action="store_true", help="only for you and your organisation")

    summary = "describe a model"
    parser = shared.add_parser(commands, "info", run_info, summary, "[MODEL]", INFO_DESCRIPTION)
    about = "a folder, a packaged model or hf://user/name (default: %(default)s)"
    given = parser.add_argument_group("input")
    given.add_argument("model", nargs="?", default="default", metavar="MODEL", help=about)


def run_export(arguments: argparse.Namespace) -> int:
    """Export, print the size."""
    shared.check_files([("FOLDER", arguments.folder)], arguments.overwrite, folders=("FOLDER",))

    from captioner.models import load
    from captioner.onnx.export import export_captioner
    from captioner.onnx.page import write_page

    folder = Path(arguments.folder)
    export_captioner(load(arguments.model, precision="float32"), folder, arguments.precision)
    if arguments.page:
        write_page(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB, weights in {arguments.precision}")
    return 0


def run_push(arguments: argparse.Namespace) -> int:
    """Load the model as a check, upload it, print its address."""
    from captioner.hub import push_model
    from captioner.model_folders import complete_folder, model_folder

    folder = complete_folder(model_folder(arguments.model))
    _load(folder)
    print(push_model(folder, arguments.name, arguments.private))
    return 0


def run_info(arguments: argparse.Namespace) -> int:
    """Print the description."""
    from captioner.caption.captioner import Captioner
    from captioner.caption.folder import describe
    from captioner.hub import is_address, pinned
    from captioner.model_folders import model_folder
    from captioner.translate.translator_folder import describe_translator

    name = pinned(arguments.model)
    folder = model_folder(name)
    model = _load(folder)
    if is_address(name):
        print(f"revision       {name}")
    if isinstance(model, Captioner):
        print(describe(model, folder))
    else:
        print(describe_translator(model, folder))
    return 0


def _load(folder: Path) -> Captioner | Translator:
    from captioner.caption.folder import load_model
    from captioner.model_folders import kind_of
    from captioner.translate.translator_folder import load_translator

    return load_translator(folder) if kind_of(folder) == "translator" else load_model(folder)
