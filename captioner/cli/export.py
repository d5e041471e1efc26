"""`captioner export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from captioner.cli import shared_options as shared

DESCRIPTION = """\
Writes a captioner as ONNX graphs, which run without torch.

  captioner export default onnx/                              float32, 76 MB
  captioner export runs/coco/model onnx/ --precision float16
  captioner export default page/ --precision int8 --page      a web page, 35 MB

In Python: captioner.onnx.load("onnx/").caption("photo.jpg"). The page needs a
web server for its files and nothing else: photos stay in the browser.
"""


def add_commands(commands: shared.Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "write a captioner as ONNX graphs", "MODEL FOLDER [options]"
    parser = shared.add_parser(commands, "export", run, summary, usage, DESCRIPTION)
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


def run(arguments: argparse.Namespace) -> int:
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
