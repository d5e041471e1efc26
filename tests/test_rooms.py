"""The rooms of the package: who may import whom, and what importing costs."""

import ast
from pathlib import Path

import pytest
from samples import imported

import captioner
from captioner.model_folders import DEMO_PHOTO

PACKAGE = Path(captioner.__file__).parent
EDGES = {
    "cpu": "",
    "attention": "cpu",
    "text": "",
    "vision": "cpu",
    "decoding": "attention text",
    "render": "text",
    "models": "cpu attention text vision decoding",
    "backends": "cpu attention text vision decoding models",
    "caption": "text vision decoding render models backends",
    "translate": "text decoding render models backends caption",
    "loading": "backends caption translate",
    "data": "text vision",
    "outputs": "text vision render caption data",
    "training": "",
    "evaluation": "text vision decoding render caption translate data",
    "runs": "attention text vision decoding render models backends caption translate loading data "
    "training evaluation",
    "serve": "text vision decoding render backends caption translate",
    "cli": "text vision decoding render backends caption translate loading data outputs training "
    "evaluation runs serve",
}
"""The rooms that each room imports, besides itself and the modules beside the rooms."""


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file imports, anywhere in it; `captioner.load` is of `loading`."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = {name.split(".")[1] for name in names if name.startswith("captioner.")}
    return {"loading" if part in captioner.__all__ else part for part in parts} & EDGES.keys()


def test_rooms_import_along_the_edges_only() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {
        "loading"
    } == EDGES.keys()
    for number, (room, edges) in enumerate(EDGES.items()):
        # Each room stands after those that it imports: there is no circle.
        assert set(edges.split()) <= {*list(EDGES)[:number]}
        for path in (*(PACKAGE / room).rglob("*.py"), *PACKAGE.glob(f"{room}.py")):
            assert imported_rooms(path) <= {room, *edges.split()}, path
    for path in PACKAGE.glob("*.py"):
        if path.stem not in ("__init__", "__main__", "loading"):
            assert imported_rooms(path) == set(), path


CIRCLES: list[set[str]] = []
"""Files of a room that import each other in a circle, anywhere in them, also for types alone."""


def imported_files(path: Path) -> set[str]:
    """The other files of its room that a file imports, by name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)}
    own = f"captioner.{path.parent.name}."
    inside = {name.removeprefix(own).split(".")[0] for name in names if name.startswith(own)}
    return {name for name in inside if path.with_name(f"{name}.py").exists()} - {path.stem}


def circles_in(room: str) -> list[set[str]]:
    """The groups of files, `__init__` left out, of which each reaches each by imports."""
    paths = {path.stem: path for path in (PACKAGE / room).glob("[!_]*.py")}
    reached = {name: imported_files(path) for name, path in paths.items()}
    for _ in reached:  # As many steps as there are files, at most.
        for names in reached.values():
            names.update(*(reached[name] for name in list(names)))
    groups = {
        frozenset(other for other in names if name in reached[other])
        for name, names in reached.items()
    }
    return [{f"{room}.{name}" for name in group} for group in groups if group]


def test_the_files_of_a_room_import_in_no_circle() -> None:
    found = [circle for room in EDGES for circle in circles_in(room)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, CIRCLES))


def test_the_readme_lists_every_room_and_module() -> None:
    readme = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")
    house = readme.partition("## The house")[2].partition("A room imports")[0]
    names = [f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")]
    names += [path.name for path in PACKAGE.glob("[!_]*.py")]
    assert [name for name in names if f"`{name}`" not in house] == []


LIGHT = ("torch", "numpy", "PIL", "fastapi", "starlette", "uvicorn")
COMPILERS = ("sympy", "triton", "torch._dynamo", "torch._inductor", "torch.onnx")
TORCH = "import captioner; captioner"
UNUSED = ("torchvision", "snowballstemmer", "pycocotools", "sacrebleu", "huggingface_hub")


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import captioner", LIGHT),
        ("from captioner.cli.main import main; main(['--help'])", LIGHT),
        ("from captioner.cli.main import main; main(['serve', '--help'])", LIGHT),
        (f"import captioner; captioner.load().caption([{str(DEMO_PHOTO)!r}])", ("torch", *UNUSED)),
        ("import captioner; captioner.load_translator().translate('Hi.')", ("torch", *UNUSED)),
        (f"{TORCH}.load(engine='torch').caption([{str(DEMO_PHOTO)!r}])", COMPILERS + UNUSED),
        (f"{TORCH}.load_translator(engine='torch').translate('Hi.')", COMPILERS + UNUSED),
    ],
)
def test_everyday_uses_import_nothing_heavy(code: str, heavy: tuple[str, ...]) -> None:
    assert imported(code, *heavy) == []
