"""The rooms of the package: who may import whom, and what importing costs."""

import ast
from graphlib import TopologicalSorter
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
    "decoding": "cpu attention text",
    "render": "text",
    "models": "cpu attention text vision decoding",
    "backends": "cpu attention text vision decoding models",
    "caption": "text vision decoding render models backends",
    "translate": "text decoding render models backends caption",
    "loading": "backends caption translate",
    "library": "",
    "data": "text vision library",
    "outputs": "text vision render caption library data",
    "training": "",
    "evaluation": "text vision decoding render caption translate data",
    "runs": "attention text vision decoding render models backends caption translate loading data "
    "training evaluation",
    "serve": "data text vision decoding render backends caption translate outputs",
    "cli": "text vision decoding render models backends caption translate loading library data "
    "outputs training evaluation runs serve",
}
"""The rooms that each room imports, besides itself and the modules beside the rooms."""


def imported_names(path: Path) -> list[str]:
    """What a file imports, anywhere in it, also for types alone."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.startswith("captioner.")]


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file imports; `captioner.load` is of `loading`."""
    parts = {name.split(".")[1] for name in imported_names(path)}
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


@pytest.mark.parametrize("room", EDGES)
def test_the_files_of_a_room_import_in_no_circle(room: str) -> None:
    own = f"captioner.{room}."
    imports = {
        path.stem: {name.split(".")[2] for name in imported_names(path) if name.startswith(own)}
        for path in (PACKAGE / room).glob("[!_]*.py")
    }
    TopologicalSorter(imports).prepare()  # Raises `CycleError`, which names the circle.


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
        # lxml swallows a Ctrl-C while it is imported.
        (
            "from captioner.cli.main import main; main(['caption', '--demo', '--quiet'])",
            ("lxml", *UNUSED),
        ),
        (f"import captioner; captioner.load().caption([{str(DEMO_PHOTO)!r}])", ("torch", *UNUSED)),
        ("import captioner; captioner.load_translator().translate('Hi.')", ("torch", *UNUSED)),
        (f"{TORCH}.load(engine='torch').caption([{str(DEMO_PHOTO)!r}])", COMPILERS + UNUSED),
        (f"{TORCH}.load_translator(engine='torch').translate('Hi.')", COMPILERS + UNUSED),
    ],
)
def test_everyday_uses_import_nothing_heavy(code: str, heavy: tuple[str, ...]) -> None:
    assert imported(code, *heavy) == []
