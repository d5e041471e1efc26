"""Files of captions, and what readers find, for the tests of several formats."""

import json
from pathlib import Path
from typing import Any

from captioner.data.example import Example, OnProblem, Problems
from captioner.data.readers import read_splits


def read(
    format: str | None,
    annotations: Path,
    images: Path | None = None,
    split: Any = None,
    on_problem: OnProblem = "refuse",
    check_files: bool = True,
) -> tuple[list[Example], Problems]:
    problems = Problems(on_problem)
    splits = read_splits(format, annotations, images, [split], problems, check_files)
    return splits[0], problems


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def photos(folder: Path, *names: str) -> Path:
    """A folder with files of these names, which are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def captions(images: list[Example]) -> list[tuple[int | str, tuple[str, ...]]]:
    return [(image.image_id, image.captions) for image in images]
