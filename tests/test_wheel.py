"""The wheel holds everything a user needs: it is built, unpacked elsewhere, and run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]


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
        assert f"captioner/models/default/{name}" in names
    assert {"captioner/py.typed", "captioner/data/coco_synonyms.txt"} <= names
    page = {path.name for path in (ROOT / "captioner" / "serve" / "static").iterdir()}
    assert {f"captioner/serve/static/{name}" for name in page} <= names
    assert {"index.html", "style.css", "page.js"} <= page
    assert not any(name.startswith(("tests/", "scripts/")) for name in names)
    # The unpacked wheel comes first on the path, before the tree that the tests run from.
    code = "import sys; from captioner.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "caption", "--demo", "--overlay", "demo.png"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "grace_hopper.jpg: " in done.stdout
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.width > 500
