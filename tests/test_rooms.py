"""The rooms of the package: who may import whom, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import captioner

PACKAGE = Path(captioner.__file__).parent
EDGES = {
    "cpu": "",
    "attention": "cpu",
    "text": "",
    "vision": "",
    "decoding": "attention",
    "render": "text",
    "caption": "cpu attention text vision decoding render",
    "translate": "cpu attention text decoding render caption",
    "data": "text",
    "training": "",
    "evaluation": "text vision decoding render caption translate data",
    "runs": "attention text vision decoding render caption translate data training evaluation",
    "serve": "text vision decoding render caption translate",
    "cli": "text vision decoding render caption translate data training evaluation runs serve",
}
"""The rooms that each room imports."""

OUTSIDE = {"models", "__init__", "__main__"}
"""What a user meets first; it may import any room, and only `cli` imports it."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The room, or the module outside of them, that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_parts(source: str) -> set[str]:
    """The rooms and modules of `OUTSIDE` that a file imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not understood here"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    parts = [name.split(".") for name in names if name.split(".")[0] == "captioner"]
    base = {path.stem for path in PACKAGE.glob("*.py")} - OUTSIDE
    found = {part[1] if len(part) > 1 else "__init__" for part in parts} - base
    return {part if part in {*EDGES, *OUTSIDE} else "__init__" for part in found}


def offences(path: Path, source: str) -> set[str]:
    """What a file imports and may not. A module beside the rooms imports none of them."""
    part = part_of(path)
    if part in OUTSIDE:
        return set()
    allowed = {part, *EDGES.get(part, "").split(), *(OUTSIDE if part == "cli" else ())}
    return imported_parts(source) - allowed


def test_rooms_import_along_the_edges_only() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir()} >= EDGES.keys()
    found = {path: offences(path, path.read_text(encoding="utf-8")) for path in modules()}
    assert {path: names for path, names in found.items() if names} == {}
    order = list(EDGES)  # Each room stands after those that it imports: there is no circle.
    for room, edges in EDGES.items():
        assert set(edges.split()) <= set(order[: order.index(room)])


@pytest.mark.parametrize(
    ("file", "line", "offence"),
    [
        ("attention/x.py", "import captioner.text", "text"),
        ("attention/x.py", "def f():\n    from captioner.caption import Caption", "caption"),
        ("vision/x.py", "from captioner import caption", "caption"),
        ("vision/x.py", "from captioner import load", "__init__"),
        ("vision/x.py", "importlib.import_module('captioner.render')", "render"),
        ("files.py", "from captioner.text import tokenizer", "text"),
        ("render/x.py", "from captioner.text import tokenizer", ""),
        ("cli/x.py", "from captioner import load", ""),
        ("files.py", "from captioner.errors import UserError", ""),
    ],
)
def test_the_check_sees_what_it_should(file: str, line: str, offence: str) -> None:
    assert offences(PACKAGE / file, line) == set(offence.split())


def loaded(code: str, *names: str) -> list[str]:
    """Which of the modules a fresh interpreter has loaded after running the code."""
    script = (
        "import sys\n"
        f"try:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {names!r} if name in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found: list[str] = ast.literal_eval(run.stderr.splitlines()[-1])
    return found


def test_importing_the_package_brings_nothing_heavy() -> None:
    assert loaded("import captioner", "torch", "numpy", "PIL") == []


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"]])
def test_asking_the_command_line_for_help_brings_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import runpy; sys.argv = {['captioner', *arguments]}; "
        "runpy.run_module('captioner.cli.main', run_name='__main__')"
    )
    assert loaded(code, "torch", "numpy", "PIL", "fastapi", "starlette", "uvicorn") == []
