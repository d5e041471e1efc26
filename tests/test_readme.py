"""Every command of the README and of docs/ is run, with small data where it needs large."""

import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image, ImageChops, ImageStat
from samples import Patch, photo_bytes, save_photo, write_captions, write_parquet, write_tar
from serve.serve_samples import started

import captioner
from captioner.cli.main import build_parser, main
from captioner.runs.read_recipe import read_any_recipe

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    *("installation", "captioning", "drawing", "descriptions", "correcting", "shards"),
    *("fine_tuning", "lesson"),
    *("training", "translation", "serving", "onnx", "scale", "coming_from", "evaluation"),
    *("extending", "own_loop", "how_it_works", "questions", "results/index"),
)
"""Of docs/, in the order in which their commands can be run."""

DOCUMENTS = [ROOT / "README.md", *(ROOT / f"docs/{name}.md" for name in PAGES)]


def blocks(language: str) -> list[str]:
    """The blocks of a language in all documents, each once."""
    texts = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)
    return list(dict.fromkeys(re.findall(rf"^```{language}\n(.*?)^```", texts, re.M | re.S)))


def shell_commands() -> list[str]:
    """All commands of the shell, without comments, each once."""
    text = "".join(blocks("bash")).replace("\\\n", "")
    lines = re.sub("#.*|&&", "\n", text).splitlines()
    return list(dict.fromkeys(filter(None, map(str.strip, lines))))


RUN = ("captioner ", "printf ", "python scripts/")
"""What the commands that these tests run begin with."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
"""Of the programs that are run from another folder."""

OWN = [command for command in shell_commands() if command.startswith(RUN)]
LARGE = [
    each for each in OWN if any(data in each for data in ("flickr", "coco", "hf://Salesforce"))
]
"""Commands that need large data."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with the photos, captions and configs that the README speaks of."""
    save_photo(tmp_path / "photo.jpg")
    for number in range(2):
        save_photo(tmp_path / "photos" / f"{number}.jpg", number)
    (tmp_path / "list.txt").write_text("photo.jpg\nphotos/0.jpg\n")
    for shard in range(2):
        write_tar(tmp_path / f"shards/0000{shard}.tar", {"0.png": photo_bytes(shard)})
    write_parquet(tmp_path / "shards/photos.parquet", {"image": [photo_bytes()]})
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    rows = ["filename;text"]
    for number, kind in enumerate(["dog", "cat", "red ball", "man"] * 3):
        photo = save_photo(tmp_path / "mine" / f"{number}.jpg", number)
        rows.append(f"mine/{photo.name};a {kind} on the beach")
    (tmp_path / "mine.csv").write_text("\n".join(rows))
    edits = [row.replace("mine/", "../mine/").replace(";", ",") for row in rows[1:]]
    (tmp_path / "photos/edits.csv").write_text("\n".join(["image,caption", *edits]))
    references = {n: [f"a dog with number {n} runs"] for n in range(2)}
    write_captions(tmp_path / "references.json", references, "{}.jpg")
    sits, other = "a dog with number {} sits", "number {} is a dog"
    for name, text, count in (("results", sits, 2), ("one", sits, 1), ("other", other, 2)):
        results = [{"image_id": n, "caption": text.format(n)} for n in range(count)]
        (tmp_path / f"{name}.json").write_text(json.dumps(results))
    write_sentences(tmp_path / "data/multi30k")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_sentences(folder: Path) -> None:
    """Files of the names of Multi30k's, of a few sentences."""
    folder.mkdir(parents=True)
    words = {
        "en": ("a dog", "two men", "a girl", "runs", "sits", "in the grass", "on a bench"),
        "de": ("ein Hund", "zwei Maenner", "ein Maedchen", "rennt", "sitzt", "im Gras", "da"),
        "fr": ("un chien", "deux hommes", "une fille", "court", "est assis", "dehors", "ici"),
    }
    for language, parts in words.items():
        clauses = itertools.product(parts[:3], parts[3:5], parts[5:])
        lines = [f"{' '.join(clause)}.\n" for clause in clauses]
        for name, count in (("train", 12), ("val", 3)):
            with gzip.open(folder / f"{name}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(lines[:count])


def ask_what_the_readme_asks(words: list[str], folder: Path) -> None:
    """Start the server, send it the requests of docs/serving.md, and end it."""
    curls = [shlex.split(each) for each in shell_commands() if "/api/" in each]
    assert len(curls) >= 5
    if "--translator" in words:  # It is of another language than captions are.
        curls = [each for each in curls if not any("language" in part for part in each)]
    command = [sys.executable, "-m", "captioner", *words, "--host", "127.0.0.1", "--port", "0"]
    with started(command, ENVIRONMENT, folder) as server:
        for program, *arguments, address in curls:
            assert address.startswith("http://127.0.0.1:8765/")
            address = address.replace("http://127.0.0.1:8765/", server.address)
            options = ["--fail", "--silent", "--noproxy", "*"]
            subprocess.run([program, *options, *arguments, address], cwd=folder, check=True)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait() == 0


SMALLER = {
    "multi30k": (
        *("text.size=300", "training.epochs=1", "training.validate_every=1"),
        *("search.beam=2", "search.maximum_length=10"),
    ),
    "shapes": ("data.shapes.train=16", "data.shapes.validation=8", "training.epochs=1"),
    "mine": ("training.epochs=1",),
    "edits": ("training.epochs=1",),
    "numbers": ("data.numbers.train=16", "data.numbers.validation=8"),
}
"""What makes the set of a config small; the model stays as it is."""


def run(command: str, folder: Path) -> None:
    """Run a command of the documents, training on a smaller set of the same kind."""
    words = shlex.split(command)[1:]
    if not command.startswith("captioner ") or {"<", ">"} & {*words}:
        line = re.sub("^captioner ", f"{sys.executable} -m captioner ", command)
        line = re.sub("^python ", f"{sys.executable} {ROOT}/", line)
        subprocess.run(["bash", "-c", line], cwd=folder, env=ENVIRONMENT, check=True)
        return
    if words[0] == "serve":
        if shutil.which("curl") is not None:
            ask_what_the_readme_asks(words, folder)
        return
    if words[0] == "train":
        (changes,) = (SMALLER[name] for name in SMALLER if name in words[1])
        words += [word for change in changes for word in ("--set", change)]
        words += ["--device", "cpu"]
    assert main(words) == 0, command


@pytest.mark.slow
def test_the_small_commands_run_in_order(folder: Path) -> None:
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    small = [command for command in OWN if command not in LARGE]
    assert len(small) >= 45
    for command in small:
        run(command, folder)
    for name in (
        *("demo.png", "maps.png", "maps.gif", "served.gif", "alignment.png", "lengths.png"),
        *("captions.jsonl", "captions.csv", "scores.json", "scores.csv", "words.csv"),
        *("maps.html", "alignment.html", "alignment.json", "bleu.json"),
    ):
        assert (folder / name).stat().st_size > 0
    assert len(list((folder / "maps").iterdir())) == 2
    assert list((folder / "words").iterdir())
    assert len((folder / "found.txt").read_text().splitlines()) == 2
    with Image.open(folder / "demo.png") as made, Image.open(ROOT / "docs/demo.png") as kept:
        assert made.size == kept.size
        difference = ImageChops.difference(made.convert("RGB"), kept.convert("RGB"))
    # What the README shows is what the packaged model gives, but for its fewer colours.
    assert max(ImageStat.Stat(difference).mean) < 3


@pytest.mark.usefixtures("folder")
def test_the_commands_that_need_large_data_are_understood() -> None:
    words = [shlex.split(each)[1:] for each in LARGE if each.startswith("captioner ")]
    assert len(words) >= 5
    for each in words:
        arguments = build_parser().parse_args(each)
        if hasattr(arguments, "config"):
            read_any_recipe(arguments.config, arguments.changes)


SAID = (
    *("most at row", "14, 14)", "'dog': -", "", "sentence 2 is of the type", "CIDEr-D"),
    *("", "torch.Size([1, 49, 256]) (7, 7)", "", "5 True\n5 True"),
    "0.jpg ('a dog runs', 'a brown dog')",
    "",
    "nats a word\n",
)
"""What each of the Python examples prints, among other things.

The fourth writes files and prints nothing: tests/outputs/test_outputs.py runs it and reads them."""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SAID)))
def test_the_python_examples_run(folder: Path, number: int) -> None:
    codes = blocks("python")
    assert len(codes) == len(SAID)
    command = [sys.executable, "-c", codes[number]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert SAID[number] in done.stdout


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=str
)
def test_links_lead_somewhere(document: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text("utf-8")):
        if "://" in target:
            continue
        file = document.parent / target if target else document
        assert file.exists(), target
        if section:
            titles = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), flags=re.MULTILINE)
            assert section in [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles]


def test_every_page_of_docs_is_read() -> None:
    unread = {*ROOT.glob("docs/**/*.md")} - {*DOCUMENTS}
    names = {path.relative_to(ROOT / "docs").as_posix() for path in unread}
    written = {"commands.md", "configuration.md", "api.md"}
    others = {"index.md", "first_change.md", "results/default_model.md", "results/vgg.md"}
    assert names == others | written
    assert len(README.splitlines()) <= 220


def test_the_extras_are_listed() -> None:
    section = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    extras = re.findall(r"^(\w+) = \[", section.partition("\n[")[0], re.M)
    page = (ROOT / "docs/installation.md").read_text("utf-8").partition("| extra |")[2]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page.partition("\n\n")[0], re.M)) == sorted(extras)


def test_the_lines_beside_the_equations_are_the_package_s() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "captioner").rglob("*.py"))
    shown = "".join(blocks("py")).splitlines()
    assert len(shown) >= 15
    assert {line.strip() for line in shown} <= {line.strip() for line in sources.splitlines()}


# What else meets a visitor agrees with the package and with CONTRIBUTING


def test_a_pull_request_runs_the_quick_commands_of_contributing() -> None:
    block = re.search(r"```bash\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    assert block is not None
    commands = [line.partition("  #")[0].strip() for line in block[1].splitlines()]
    expected = [command for command in commands if command != "pytest -m slow"]
    workflow = yaml.safe_load((ROOT / ".github/workflows/pull_request.yml").read_text())
    steps = workflow["jobs"]["tests"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == expected


def test_the_citation_has_the_version_of_the_package() -> None:
    citation: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == captioner.__version__


def test_the_python_reference_has_every_public_name() -> None:
    names = re.findall(r"^### `captioner\.(\w+)`$", (ROOT / "docs/api.md").read_text(), re.M)
    assert sorted(names) == sorted(captioner.__all__)


def test_contributing_gives_the_reason_of_each_dependency() -> None:
    project = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2]
    names = re.findall(r'^    "([\w-]+)', project.partition("]")[0], re.M)
    assert 5 <= len(names) <= 11
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies")[2]
    rows = {name: re.search(rf"^\|.*\b{name}\b.*\|.*\|$", table, re.M) for name in names}
    assert [name for name in names if rows[name] is None] == []
