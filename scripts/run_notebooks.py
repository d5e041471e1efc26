"""Run the notebooks from beginning to end and keep their outputs, in place.

Each is run in a new kernel, by the Python that runs this script. What is kept is what a reader
sees: times, versions and the like are left out, and of a picture that comes as PNG and as JPEG the
smaller one is kept. A notebook that ends with an error is left as it was.

  python scripts/run_notebooks.py
  python scripts/run_notebooks.py notebooks/1_attention_by_hand.ipynb
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from captioner.cli.program import run_program, script_parser
from captioner.errors import UserError
from captioner.files import write_text

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 900
"""Seconds that one cell may take, on a machine that has other things to do as well."""


def executed(path: Path) -> NotebookNode:
    """A notebook with the outputs that it has when it is run whole; the file stays as it is.

    Where a cell ends with an error, prints the cell with its traceback, and raises `UserError`
    naming the notebook.
    """
    notebook = nbformat.read(path, as_version=4)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        coalesce_streams=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    except CellExecutionError as error:
        print(re.sub(r"\x1b\[[0-9;]*m", "", str(error)), file=sys.stderr)  # Without colours.
        raise UserError(f"{path} ends with an error: {error.ename}: {error.evalue}") from None
    return cleaned(notebook)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """The notebook without what differs from run to run or says nothing to a reader."""
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
        for output in cell.get("outputs", []):
            output.pop("transient", None)
            if "metadata" in output:
                output.metadata = NotebookNode()
            data = output.get("data", {})
            if {"image/png", "image/jpeg"} <= data.keys():
                del data[max("image/png", "image/jpeg", key=lambda kind: len(data[kind]))]
    return notebook


def main() -> None:
    """Run them."""
    parser = script_parser(__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="which; all by default")
    for path in parser.parse_args().notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        write_text(path, nbformat.writes(executed(path)) + "\n")
        print(f"{path.name} was run")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
