"""Refuses outputs that would replace an input, before a command starts."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from captioner.errors import UserError
from captioner.files import check_writable, file_keys, real_path

_CAPTION_FILES = ("captions_*.json", "annotations/captions_*.json")
_MODEL_FILES = (
    *("model.safetensors", "config.json", "README.md"),
    *("vocabulary.json", "source.json", "target.json"),
)

READ_IN_FOLDERS = {
    "--annotations": _CAPTION_FILES,
    "REFERENCES": _CAPTION_FILES,
    "--training-captions": _CAPTION_FILES,
    "MODEL": _MODEL_FILES,
    "MODELS": _MODEL_FILES,
}
"""Patterns of the files, besides photos, that a command reads from a folder."""


def check_outputs(
    arguments: argparse.Namespace, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """Raise `UserError` for an output that replaces an input or output, or cannot be written.

    inputs, outputs: arguments that name files, as the user sees them: `MODEL`, `--json`.
    """
    written = [(argument, Path(path)) for argument, path in _paths(arguments, outputs)]
    check_places(written, keys_of(_paths(arguments, inputs)))
    for argument, path in written:
        if os.path.lexists(path):
            for source, given in _paths(arguments, READ_IN_FOLDERS):
                inside = _path_inside(_folder_of(source, given), path)
                if any(fnmatch(inside, each) for each in READ_IN_FOLDERS[source]):
                    raise UserError(f"{argument} would replace {path}, which {source} reads")


def _paths(arguments: argparse.Namespace, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each path of the arguments, with the argument's name."""
    for name in names:
        given = getattr(arguments, name.lstrip("-").replace("-", "_").lower(), None)
        for path in given if isinstance(given, list) else [given]:
            if path == "":
                raise UserError(f"{name} is empty; it should name a file or folder")
            if path is not None:
                yield name, path


def keys_of(inputs: Iterable[tuple[str, str]]) -> dict[object, str]:
    """The argument of each input by its `file_keys`; `-` is standard input."""
    files = ((argument, "/dev/stdin" if path == "-" else path) for argument, path in inputs)
    return {key: argument for argument, path in files for key in file_keys(path)}


def check_places(
    files: Sequence[tuple[str, Path]],
    inputs: Mapping[object, str],
    folders: Sequence[tuple[str, Path]] = (),
) -> list[Path]:
    """The folders of outputs, given with their arguments.

    inputs: of `keys_of`. Raises `UserError` for an output that is a folder, or another file of the
    command, or a photo, or cannot be written.
    """
    taken = dict(inputs)
    places: dict[str, str] = {}
    needed = {path: argument for argument, path in folders}
    for argument, path in files:
        if os.path.isdir(path):
            raise UserError(f"{argument} {path} is a folder, not a file")
        for key in file_keys(path):
            if taken.setdefault(key, argument) != argument:
                raise UserError(f"{taken[key]} and {argument} are the same file, {path}")
        refuse_to_replace_a_photo(argument, path)
        places[real_path(path)] = argument
        needed.setdefault(path.parent, argument)
    for folder, argument in needed.items():
        real = Path(real_path(folder))
        for above in map(os.fspath, (real, *real.parents)):
            if above in places:
                raise UserError(f"{places[above]} {above} is a file, but {argument} needs a folder")
        check_writable(argument, folder)
    return list(needed)


def refuse_to_replace_a_photo(output: str, path: Path) -> None:
    """Raise `UserError` if a picture that captioner did not draw is there."""
    if not os.path.isfile(path) or not os.path.getsize(path):
        return
    # Imported here: needed only if an output exists.
    from captioner.vision.drawn import is_drawn
    from captioner.vision.images import IMAGE_SUFFIXES

    if Path(real_path(path)).suffix.lower() in IMAGE_SUFFIXES and not is_drawn(path):
        raise UserError(f"{output} would replace {path}, which is a photo; give another place")


def _folder_of(source: str, given: str) -> str:
    """The folder of an argument: of a model also by its name or its run's."""
    if source in ("MODEL", "MODELS"):
        from captioner.model_folders import model_folder

        with contextlib.suppress(UserError):  # The command says what is wrong with it.
            return os.fspath(model_folder(given))
    return given


def _path_inside(folder: str, path: Path) -> str:
    """The path relative to a folder; empty if it lies elsewhere."""
    real, base = Path(real_path(path)), Path(real_path(folder))
    return real.relative_to(base).as_posix() if real.is_relative_to(base) else ""
