"""The notebooks run whole, keep what they show, and use what is public only."""

from __future__ import annotations

import ast
import base64
import io
import re
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 700_000
"""Bytes of a notebook with its pictures."""

MACHINE_PATH = re.compile(r"/(?:home|root|tmp|work|Users|opt|usr|var)/|[A-Z]:\\|site-packages")


def notebook(path: Path) -> NotebookNode:
    read: NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(read)
    return read


def code_cells(path: Path) -> list[NotebookNode]:
    return [cell for cell in notebook(path).cells if cell.cell_type == "code"]


def private_names(source: str) -> list[str]:
    """What a cell takes from the package and is private, module or name."""
    tree = ast.parse("\n".join(line for line in source.splitlines() if line[:1] not in "%!"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "captioner":
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] == "captioner"]
        elif isinstance(node, ast.Attribute):
            found.append(node.attr)
    private = re.compile(r"(^|\.)_(?!_)")
    return [name for name in found if private.search(name)]


def outputs(path: Path) -> Iterator[NotebookNode]:
    for cell in code_cells(path):
        yield from cell.outputs


def texts(path: Path) -> Iterator[str]:
    """All that is written in a notebook, its pictures left out."""
    for cell in notebook(path).cells:
        yield cell.source
    for output in outputs(path):
        yield output.get("text", "")
        data = output.get("data", {})
        yield from (str(text) for kind, text in data.items() if not kind.startswith("image/"))


def pictures(path: Path) -> Iterator[Image.Image]:
    for output in outputs(path):
        for kind, data in output.get("data", {}).items():
            if kind.startswith("image/"):
                yield Image.open(io.BytesIO(base64.b64decode(data)))


def script_that_runs_them():
    """`scripts/run_notebooks.py` as a module."""
    path = ROOT / "scripts" / "run_notebooks.py"
    found = util.spec_from_file_location(path.stem, path)
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_all_five_are_there() -> None:
    assert [path.name.split("_")[0] for path in NOTEBOOKS] == ["1", "2", "3", "4", "5"]


@pytest.mark.slow
@every_notebook
def test_it_runs_whole(path: Path) -> None:
    before = path.read_bytes()
    run = script_that_runs_them().executed(path)
    assert path.read_bytes() == before
    kinds = [[each.output_type for each in cell.get("outputs", [])] for cell in run.cells]
    kept = [[each.output_type for each in cell.get("outputs", [])] for cell in notebook(path).cells]
    assert kinds == kept  # What is kept is of these very cells.
    assert words_before_training(run) == words_before_training(notebook(path))


TRAINS = re.compile(r"\boptim\.|\btrain\(")


def words_before_training(read: NotebookNode) -> list[list[str]]:
    """The words that each cell prints, up to the first cell that trains a model.

    What a trained model prints differs from one processor to another.
    """
    words = []
    for cell in read.cells:
        if TRAINS.search(cell.source):
            break
        printed = "".join(output.get("text", "") for output in cell.get("outputs", []))
        words.append(re.sub(r"[-+\d.,%]+", "", printed).split())
    return words


@every_notebook
def test_its_outputs_are_kept(path: Path) -> None:
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.output_type == "error" for output in outputs(path))
    assert not any(output.get("name") == "stderr" for output in outputs(path))
    drawn = list(pictures(path))
    assert len(drawn) >= 4
    for picture in drawn:
        assert min(picture.size) > 60
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 5
    assert path.stat().st_size < LARGEST


@every_notebook
def test_it_tells_nothing_of_the_machine_it_ran_on(path: Path) -> None:
    assert [text for text in texts(path) if MACHINE_PATH.search(text)] == []
    assert all(not cell.metadata for cell in notebook(path).cells)
    assert set(notebook(path).metadata) == {"kernelspec", "language_info"}


@every_notebook
def test_it_uses_what_is_public_only(path: Path) -> None:
    assert [name for cell in code_cells(path) for name in private_names(cell.source)] == []


@pytest.mark.parametrize(
    ("source", "private"),
    [
        ("from captioner.caption._looks import Look", ["captioner.caption._looks.Look"]),
        ("from captioner.caption import _look", ["captioner.caption._look"]),
        ("import captioner._looks", ["captioner._looks"]),
        ("%%capture\nmodel._look(1)", ["_look"]),
        ("from captioner import load\nimport _thread\nload().__class__", []),
    ],
)
def test_what_is_private_is_seen(source: str, private: list[str]) -> None:
    assert private_names(source) == private


@every_notebook
def test_its_cells_are_short_and_have_words_between_them(path: Path) -> None:
    cells = notebook(path).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    for cell in cells:
        assert len(cell.source.splitlines()) <= 45, cell.source
    told = [cell.cell_type == "markdown" for cell in cells]
    assert sum(told) >= len(cells) / 3


def test_a_failing_notebook_is_named_and_left_as_it_was(tmp_path: Path, capsys) -> None:
    script = script_that_runs_them()
    path = tmp_path / "wrong.ipynb"
    cells = [nbformat.v4.new_code_cell("import captioner"), nbformat.v4.new_code_cell("1 / 0")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_bytes()
    with pytest.raises(script.UserError, match=r"wrong\.ipynb ends with an error: ZeroDivision.*$"):
        script.executed(path)
    assert "1 / 0\n" in capsys.readouterr().err
    assert path.read_bytes() == before


PICTURE = """
import sys
from PIL import Image

print("one"); sys.stdout.flush(); print("two")
Image.linear_gradient("L").convert("RGB")
"""


def test_running_keeps_what_a_reader_sees_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.ipynb"
    cell = nbformat.v4.new_code_cell(PICTURE, id="one", metadata={"scrolled": True})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    monkeypatch.setattr(sys, "argv", ["run_notebooks.py", str(path)])
    script_that_runs_them().main()
    assert "small.ipynb was run" in capsys.readouterr().out
    (cell,) = code_cells(path)
    assert not cell.metadata
    printed, shown = cell.outputs
    assert printed.text == "one\ntwo\n"
    assert len([kind for kind in shown.data if kind.startswith("image/")]) == 1
    first = path.read_bytes()
    script_that_runs_them().main()
    assert path.read_bytes() == first
