"""Refuses outputs that would replace an input, before a command starts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from captioner.errors import UserError
from captioner.files import check_output, file_keys, real_path

_CAPTION_FILES = ("captions_*.json", "annotations/captions_*.json")

READ_IN_FOLDERS = {
    "--annotations": _CAPTION_FILES,
    "REFERENCES": _CAPTION_FILES,
    "--training-captions": _CAPTION_FILES,
    "--entities": ("Annotations/*.xml", "Sentences/*.txt"),
    "MODEL": (
        *("model.safetensors", "config.json", "README.md"),
        *("vocabulary.json", "source.json", "target.json"),
    ),
}
"""Patterns of the files, besides photos, that a command reads from a folder."""


def check_outputs(
    arguments: argparse.Namespace, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """Raise `UserError` for an output that replaces an input or output, or cannot be written.

    inputs, outputs: arguments that name files, as the user sees them: `MODEL`, `--json`.
    """
    taken: dict[object, str] = {}
    for argument, path in _paths(arguments, inputs):
        taken.update(dict.fromkeys(file_keys(path), argument))
    written = list(_paths(arguments, outputs))
    places: dict[str, str] = {}
    for argument, path in written:
        check_output(argument, path)
        for key in file_keys(path):
            if taken.setdefault(key, argument) != argument:
                raise UserError(f"{taken[key]} and {argument} are the same file, {path}")
        if os.path.lexists(path):
            _refuse_to_replace_an_input(arguments, argument, path)
        places[real_path(path)] = argument
    for argument, path in written:
        for above in map(os.fspath, Path(real_path(path)).parents):
            if above in places:
                raise UserError(f"{places[above]} {above} is a file, but {argument} needs a folder")


def _paths(arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each path of the arguments, with the argument's name."""
    for name in names:
        given = getattr(arguments, name.lstrip("-").replace("-", "_").lower(), None)
        for path in given if isinstance(given, list) else [given]:
            if path == "":
                raise UserError(f"{name} is empty; it should name a file or folder")
            if path is not None:
                yield name, path


def _refuse_to_replace_an_input(arguments: argparse.Namespace, output: str, path: str) -> None:
    """Raise `UserError` if an existing file is a photo, or read from a folder of the inputs."""
    for name, patterns in READ_IN_FOLDERS.items():
        for source, folder in _paths(arguments, (name,)):
            inside = _path_inside(folder, path)
            if any(inside and fnmatch(inside, pattern) for pattern in patterns):
                raise UserError(f"{output} would replace {path}, which {source} reads")
    refuse_to_replace_a_photo(output, path)


def refuse_to_replace_a_photo(output: str, path: str | os.PathLike[str]) -> None:
    """Raise `UserError` if a picture that captioner did not draw is there."""
    # Imported here: needed only if an output exists.
    from captioner.vision.drawn import is_drawn
    from captioner.vision.images import IMAGE_SUFFIXES

    is_picture = Path(real_path(path)).suffix.lower() in IMAGE_SUFFIXES
    if is_picture and os.path.isfile(path) and os.path.getsize(path) and not is_drawn(path):
        raise UserError(f"{output} would replace {path}, which is a photo; give another place")


def _path_inside(folder: str, path: str) -> str:
    """The path relative to a folder; empty if it lies elsewhere."""
    real, base = Path(real_path(path)), Path(real_path(folder))
    return real.relative_to(base).as_posix() if real.is_relative_to(base) else ""
