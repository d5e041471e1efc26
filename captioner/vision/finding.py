"""Finds the photos of files, folders, patterns and shards."""

import os
from collections.abc import Sequence

from captioner.outcomes import Failed
from captioner.vision.images import IS_ADDRESS, ImageSource, Report, ignore, local_path
from captioner.vision.shards import read_shards


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
            for name, record in read_shards(path, problems.append, note):
                photo = record["image"]
                if isinstance(photo, str) and photo != name:  # A path in Parquet, at a row.
                    name = photo = os.path.join(os.path.dirname(os.path.dirname(name)), photo)
                if photo:
                    photos[name] = photo
                else:
                    problems.append(f"{name} has no photo")
        failed += [Failed(path, problem) for problem in problems]
    return photos, failed
