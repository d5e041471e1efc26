"""The rooms of the package: who may import whom, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import captioner

PACKAGE = Path(captioner.__file__).parent
ROOMS = (
    "cpu",
    "attention",
    "text",
    "vision",
    "decoding",
    "render",
    "caption",
    "translate",
    "data",
    "training",
    "evaluation",
    "runs",
    "serve",
    "cli",
)
"""Lowest first: a room imports only from the rooms that stand before it."""

BASE = {
    *("errors", "files", "schema", "progress", "devices", "outcomes", "background"),
    *("model_folders", "weight_files", "csv_tables", "demo"),
}
"""Modules that every room may import, and that import no room."""

OUTSIDE = {"models", "__init__", "__main__"}
"""What a user meets first; it may import any room, and only `cli` imports it."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The room, or the base module, that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_parts(source: str) -> set[str]:
    """The rooms and base modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not understood here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "captioner":
                known = len(parts) > 1 and parts[1] in {*ROOMS, *BASE, *OUTSIDE}
                found.add(parts[1] if known else "__init__")
    return found


def offences(path: Path, source: str) -> list[str]:
    """What a file imports and may not."""
    part = part_of(path)
    if part in OUTSIDE:
        return []
    allowed = set(BASE)
    if part in ROOMS:
        allowed |= set(ROOMS[: ROOMS.index(part) + 1])
    if part == "cli":
        allowed |= OUTSIDE
    return sorted(imported_parts(source) - allowed)


def test_a_room_imports_only_from_rooms_above_it() -> None:
    assert {part_of(path) for path in modules()} <= {*ROOMS, *BASE, *OUTSIDE}
    found = {path: offences(path, path.read_text(encoding="utf-8")) for path in modules()}
    assert {path: names for path, names in found.items() if names} == {}


def test_data_knows_no_model() -> None:
    of_data = [path for path in modules() if part_of(path) == "data"]
    assert len(of_data) > 10
    for path in of_data:
        found = imported_parts(path.read_text(encoding="utf-8"))
        assert found <= {*BASE, "text", "data"}, path


@pytest.mark.parametrize(
    ("file", "line", "offence"),
    [
        ("text/x.py", "from captioner.vision.vgg import VGGEncoder", ["vision"]),
        ("attention/x.py", "import captioner.text", ["text"]),
        ("attention/x.py", "def f():\n    from captioner.caption import Caption", ["caption"]),
        ("vision/x.py", "from captioner import caption", ["caption"]),
        ("vision/x.py", "from captioner import load", ["__init__"]),
        ("vision/x.py", "importlib.import_module('captioner.render')", ["render"]),
        ("files.py", "from captioner.text import tokenizer", ["text"]),
        ("vision/x.py", "from captioner.text import tokenizer", []),
        ("cli/x.py", "from captioner import load", []),
        ("files.py", "from captioner.errors import UserError", []),
    ],
)
def test_the_check_sees_what_it_should(file: str, line: str, offence: list[str]) -> None:
    assert offences(PACKAGE / file, line) == offence


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
