"""The reader of each format of captioned photos."""

from __future__ import annotations

import os
from collections.abc import Callable

from captioner.data.coco import read_coco
from captioner.data.flickr8k import read_flickr8k
from captioner.data.karpathy import read_karpathy
from captioner.data.records import CaptionSet
from captioner.data.table import read_table
from captioner.errors import UserError

READERS: dict[str, Callable[..., CaptionSet]] = {
    "coco": read_coco,
    "karpathy": read_karpathy,
    "flickr8k": read_flickr8k,
    "table": read_table,
}
"""By format name; all take the arguments of `read_captions` behind `format`, in its order."""


def read_captions(
    format: str,
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None,
    split: str | None,
    on_problem: str = "refuse",
    check_files: bool = True,
) -> CaptionSet:
    """Read one split of a data set on disk.

    images: the folder of the photos; optional for a table and where photos need not exist.
    Raises `UserError` without the folder, and as the format's reader does.
    """
    if images is None and format != "table":
        if check_files:
            raise UserError(f"data format {format!r} needs the folder of the photos")
        images = ""
    return READERS[format](annotations, images, split, on_problem, check_files)
