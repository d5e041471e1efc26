"""Finds the photos of files, folders, patterns and shards."""

import os
from collections.abc import Sequence

from captioner.outcomes import Failed
from captioner.vision.images import (
    IS_ADDRESS,
    ImageSource,
    Report,
    ignore,
    local_path,
    photo_files,
)
from captioner.vision.shards import SHARD_SUFFIXES, numbered, shard_records


def find_photos(
    paths: Sequence[str], note: Report = ignore
) -> tuple[dict[str, ImageSource], list[Failed]]:
    """The photos of files, folders, patterns and shards, by name; and names without a photo.

    note: see `photo_files`.
    """
    photos: dict[str, ImageSource] = {}
    failed: list[Failed] = []
    for path in map(local_path, paths):
        problems: list[str] = []
        if not path:
            problems.append("an empty path names no photo")
        elif path == "-":  # Standard input; a file of that name is ./-.
            photos[path] = path
        elif "://" in path and not os.path.lexists(path):
            problems.append(f"{path} {IS_ADDRESS}")
        else:
            for file in photo_files(numbered(path), problems.append, note):
                photos |= _photos_of(os.fspath(file), problems.append)
        failed += [Failed(path, problem) for problem in problems]
    return photos, failed


def _photos_of(file: str, report: Report) -> dict[str, ImageSource]:
    """The photos of a shard, by name; of another file, the file."""
    photos: dict[str, ImageSource] = {}
    if not file.lower().endswith(SHARD_SUFFIXES):
        return {file: file}
    for name, record in shard_records(file, report):
        photo = record["image"]
        if isinstance(photo, str):
            name = photo = os.path.join(os.path.dirname(file), photo)
        if photo:
            photos[name] = photo
        else:
            report(f"{name} has no photo")
    return photos
