"""The notebooks run whole, keep what they show, and use what is public; their French is right."""

import base64
import io
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
FRENCH = runpy.run_path(str(ROOT / "notebooks/french.py"))
french_order, french_pairs = FRENCH["french_order"], FRENCH["french_pairs"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PRIVATE = re.compile(r"(\.|, ?|import )_[a-z]")
"""A private module or name that a cell takes from elsewhere."""

MACHINE_PATH = re.compile(r"/(?:home|root|tmp|work|Users|opt|usr|var)/|[A-Z]:\\|site-packages")


def notebook(path: Path) -> NotebookNode:
    read: NotebookNode = nbformat.read(path, as_version=4)
    nbformat.validate(read)
    return read


def code_cells(path: Path) -> list[NotebookNode]:
    return [cell for cell in notebook(path).cells if cell.cell_type == "code"]


def outputs(path: Path) -> list[NotebookNode]:
    return [output for cell in code_cells(path) for output in cell.outputs]


def texts(path: Path) -> Iterator[str]:
    """All that is written in a notebook, its pictures left out."""
    yield from (cell.source for cell in notebook(path).cells)
    for output in outputs(path):
        yield output.get("text", "")
        data = output.get("data", {})
        yield from (str(text) for kind, text in data.items() if not kind.startswith("image/"))


def pictures(path: Path) -> Iterator[Image.Image]:
    for output in outputs(path):
        for kind, data in output.get("data", {}).items():
            if kind.startswith("image/"):
                yield Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import run_notebooks

    return run_notebooks


every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.slow
@every_notebook
def test_it_runs_whole(path: Path, script: ModuleType) -> None:
    before = path.read_bytes()
    run = script.executed(path)
    assert path.read_bytes() == before
    kept = notebook(path)
    kinds = [[each.output_type for each in cell.get("outputs", [])] for cell in run.cells]
    # What is kept is of these very cells.
    assert kinds == [[each.output_type for each in cell.get("outputs", [])] for cell in kept.cells]
    assert words_before_training(run) == words_before_training(kept)


def words_before_training(read: NotebookNode) -> list[list[str]]:
    """The words that each cell prints, up to the first cell that trains a model.

    What a trained model prints differs from one processor to another.
    """
    words = []
    for cell in read.cells:
        if re.search(r"\boptim\.|\btrain\(", cell.source):
            break
        printed = "".join(output.get("text", "") for output in cell.get("outputs", []))
        words.append(re.sub(r"[-+\d.,%]+", "", printed).split())
    return words


@every_notebook
def test_its_outputs_are_kept(path: Path) -> None:
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not {"error", "stderr"} & {each.get("name", each.output_type) for each in outputs(path)}
    drawn = list(pictures(path))
    assert len(drawn) >= 4
    for picture in drawn:
        assert min(picture.size) > 60
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 5
    assert path.stat().st_size < 700_000  # Bytes, with its pictures.


@every_notebook
def test_it_tells_nothing_of_its_machine_and_uses_public_names(path: Path) -> None:
    assert [text for text in texts(path) if MACHINE_PATH.search(text)] == []
    assert [cell.metadata for cell in notebook(path).cells if cell.metadata] == []
    assert set(notebook(path).metadata) == {"kernelspec", "language_info"}
    assert [cell.source for cell in code_cells(path) if PRIVATE.search(cell.source)] == []


def test_every_word_has_one_translation_but_for_its_gender() -> None:
    found: dict[str, set[str]] = {}
    pairs = french_pairs(500, seed=1)
    assert pairs == french_pairs(500, seed=1)
    for pair in pairs:
        english, french = pair.source.split(), pair.target.split()
        order = french_order(english)
        assert sorted(order) == list(range(len(english)))
        for word, place in zip(french, order, strict=True):
            found.setdefault(english[place], set()).add(word)
    for english, forms in found.items():
        assert len(forms) <= 2
        assert english in FRENCH["ADJECTIVES"] | {"a", "the"} or len(forms) == 1
    assert found["French"] == {"français", "française"}
    assert found["a"] == {"un", "une"}
    assert len(found) == len(FRENCH["ADJECTIVES"]) + len(FRENCH["NOUNS"]) + 8
