"""The wheel holds everything a user needs: it is built, unpacked elsewhere, and run there."""

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
    tree, site = tmp_path / "tree", tmp_path / "site"
    without_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "captioner", tree / "captioner", ignore=without_caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = [sys.executable, "-m", "pip", "wheel", str(tree), "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--quiet", "-w", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("captioner-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    package = (path.relative_to(tree).as_posix() for path in tree.glob("captioner/**/*.*"))
    assert set(package) <= names
    info = f"captioner-{captioner.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"captioner", info}
    assert wheel.stat().st_size < 54e6  # docs/installation.md says 51 MB.

    def run(*arguments: str, given: str = "") -> str:
        # The unpacked wheel comes first on the path, before the tree that the tests run from.
        done = subprocess.run(
            [sys.executable, "-m", "captioner", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            input=given,
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("caption", "--demo", "--overlay", "demo.png").strip()
    assert "Hund" in run("translate", given="A dog runs.\n")
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.width > 500
