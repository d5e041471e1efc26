"""The wheel holds everything a user needs: it is built, unpacked elsewhere, and run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

import captioner

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_wheel_captions_the_demo_photo_on_its_own(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(
        ROOT / "captioner", tree / "captioner", ignore=shutil.ignore_patterns("__pycache__")
    )
    build = [sys.executable, "-m", "pip", "wheel", str(tree), "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--quiet", "-w", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("captioner-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    for name in ("model.safetensors", "config.json", "vocabulary.json", "README.md"):
        for model in ("default", "english_german", "english_french"):
            assert f"captioner/models/{model}/{name}" in names
    assert {"captioner/py.typed", "captioner/data/coco_synonyms.txt"} <= names
    folders = [ROOT / "captioner" / room / "static" for room in ("serve", "render")]
    static = {path for folder in folders for path in folder.iterdir()}
    assert {path.relative_to(ROOT).as_posix() for path in static} <= names
    assert {"index.html", "style.css", "viewer.js", "viewer.css"} <= {path.name for path in static}
    info = f"captioner-{captioner.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"captioner", info}
    assert wheel.stat().st_size < 54e6  # docs/captioning.md says 51 MB.
    # The unpacked wheel comes first on the path, before the tree that the tests run from.
    code = "import sys; from captioner.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def run(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            input=given,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("caption", "--demo", "--overlay", "demo.png").strip()
    assert "Hund" in run("translate", given="A dog runs.\n")
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.width > 500
