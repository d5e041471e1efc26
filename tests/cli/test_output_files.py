"""Scoring commands write over nothing that they read, and start only what they can write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from coco_samples import write_captions
from samples import Patch, Refused, save_photo

from captioner.cli.main import main

FILES = "score results.json references.json"
OF_FOLDER = "maps M --images photos"
OF_COCO = f"{OF_FOLDER} --format coco --annotations references.json"


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working folder with every kind of input, and a model `M`."""
    for n in range(3):
        save_photo(tmp_path / "photos" / f"{n}.png", n)
    (tmp_path / "link.png").symlink_to("photos/1.png")
    (tmp_path / "coco").mkdir()
    for name in ("references.json", "coco/captions_val2014.json"):
        write_captions(tmp_path / name, {n: [f"dog {n}"] for n in range(3)})
    records = [{"image_id": n, "caption": "a dog"} for n in range(3)]
    (tmp_path / "results.json").write_text(json.dumps(records))
    (tmp_path / "M").symlink_to(tiny_model)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(tiny_model)
    (tmp_path / "x").write_text("a dog")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, the model's too."""
    return {
        os.path.join(parent, name): Path(parent, name).read_bytes()
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (f"{OF_COCO} --json references.json", "--annotations and --json are the same file"),
        (f"{OF_COCO} --csv photos/1.png", "--csv would replace photos/1.png, which is a photo"),
        (f"{OF_COCO} --csv link.png", "--csv would replace link.png, which is a photo"),
        (f"{OF_COCO} --json photos", "--json photos is a folder"),
        (
            f"{OF_FOLDER} --format coco --annotations coco --json coco/captions_val2014.json",
            "which --annotations reads",
        ),
        (f"{OF_FOLDER} --csv n --json ./n", "--json and --csv are the same file, n"),
        (f"{OF_FOLDER} --json M/config.json", "would replace M/config.json, which MODEL"),
        (
            "translate x --model run --alignment run/model/config.json",
            "--alignment would replace run/model/config.json, which MODEL reads",
        ),
        ("maps M --images photos/0.png --curves photos/0.png", "--images and --curves are the sam"),
        (f"{FILES} --images photos --page photos/0.png", "is a photo"),
        (f"{FILES} --json new --csv new/x.csv", "new is a file, but --csv needs a folder"),
        (f"{FILES} --json /proc/a.json --csv a.csv", "--json cannot write into"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is_read(
    arguments: str, sentence: str, folder: Path, monkeypatch: Patch, refused: Refused
) -> None:
    if "/proc" in arguments and not Path("/proc/self").exists():
        pytest.skip("this system has no folder /proc, which takes no files")
    monkeypatch.setattr("captioner.load", lambda *rest: pytest.fail("a model was loaded"))
    before = contents(folder)
    assert sentence in refused(arguments.split())
    assert contents(folder) == before


def test_outputs_of_before_may_be_written_over(folder: Path) -> None:
    (folder / "photos" / "notes.csv").write_text("old")
    outputs = "--csv photos/notes.csv --curves c.png"
    curves = "--curve-photos 1 --curve-steps 2"
    for _ in range(2):
        assert main(f"{OF_FOLDER} {outputs} {curves}".split()) == 0
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "photos" / "notes.csv").read_text() != "old"
