"""Saves the files of a model, so that a folder has the old ones or the new ones, whole."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from captioner.files import (
    atomic_path,
    flush_folder,
    read_json,
    refuse_os_errors,
    remove_temporaries,
    temporary_path,
    write_json,
)
from captioner.model_folders import CARD, CONFIG, FILES, GRAPHS, SAVED, file_digest


@contextmanager
def saving(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder for a model's files, which then replace `folder`'s.

    Adds their digests to the config. At any moment `complete_folder` finds the old files or the new
    ones, whole: the temporary folder becomes `.saved` in one step, and is removed when its files
    are copied.
    """
    saved = folder / SAVED
    temporary = temporary_path(folder)
    with refuse_os_errors(f"cannot write model folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
        if saved.is_dir():
            _replace_by(saved)
        temporary.mkdir()
        try:
            yield temporary
            _add_digests(temporary)
            os.rename(temporary, saved)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        flush_folder(folder)
        _replace_by(saved)


def _replace_by(saved: Path) -> None:
    for name in GRAPHS:
        if not (saved / name).exists():  # They are of the model before.
            (saved.parent / name).unlink(missing_ok=True)
    copy_model(saved, saved.parent)
    copied = temporary_path(saved.parent)
    os.rename(saved, copied)
    flush_folder(saved.parent)
    shutil.rmtree(copied, ignore_errors=True)


def copy_model(source: Path, folder: Path) -> None:
    """Copy a model's files from one folder to another, each atomically."""
    for path in (source / name for name in FILES):
        if path.is_file():
            with atomic_path(folder / path.name) as temporary:
                shutil.copyfile(path, temporary)


def _add_digests(folder: Path) -> None:
    """Add to a config the digests of the files beside it, but of its card."""
    path = folder / CONFIG
    names = [name for name in FILES if name not in (CONFIG, CARD) and (folder / name).is_file()]
    digests = {name: file_digest(folder / name) for name in names}
    write_json(path, {**read_json(path, "model config"), "files": digests})
