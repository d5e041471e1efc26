"""COCO captions, 2014 and 2017.

Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation Server*; the files are
`annotations/captions_{train,val}{2014,2017}.json` and the folders of photos `train2014` and so on.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import FailFast, with_config
from typing_extensions import TypedDict

from captioner.data.collector import CaptionCollector, image_folder, read_document
from captioner.data.records import CaptionSet
from captioner.data.source_problems import OnProblem
from captioner.errors import UserError
from captioner.schema import RECORD, Records, Text

_FOLDER = re.compile(r"(?:train|val|test)20\d\d")
_SPLIT = re.compile(r"(?<![a-z])(?:train|val|test)(?:20\d\d)?(?![a-z0-9])")


@with_config(RECORD)
class _Image(TypedDict):
    id: int
    file_name: Text


@with_config(RECORD)
class _Caption(TypedDict):
    id: int
    image_id: int
    caption: Text


class _CaptionFile(Records):
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Caption], FailFast()]


def read_coco(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    split: str | None = None,
    on_problem: OnProblem = "refuse",
    check_files: bool = True,
) -> CaptionSet:
    """Read a caption file of COCO.

    annotations: the JSON file, or a folder with `captions_SPLIT.json` or
        `annotations/captions_SPLIT.json`.
    images: the folder of the photos, or of `train2014`, `val2017` and so on.
    split: train, val or test, or with the year, train2014; required for a folder of annotations.
        A file is one split, and read whole: its name may not say another.
    on_problem, check_files: see `CaptionCollector`.

    `image_id` is COCO's number. Raises `UserError` for a missing or ill-formed file, for another
    split or one that contradicts the file name, and as `CaptionCollector.finish` does.
    """
    file = _annotation_file(Path(annotations), split)
    where = f"caption file {file}"
    if split is not None and not _SPLIT.fullmatch(split):
        raise UserError(f"{where}: a split of COCO is train, val or test, not {split!r}")
    named = _SPLIT.findall(file.name)
    if split and named and not any(n.startswith(split) or split.startswith(n) for n in named):
        raise UserError(f"{where} is of the split {named[0]!r}, not {split!r}")
    document = read_document(_CaptionFile, file, "caption file", "coco")
    folder_of = cache(lambda name: image_folder(Path(images), name, split, *named))
    collector = CaptionCollector(where, on_problem, check_files)
    for image in document.images:
        path = folder_of(_matched(_FOLDER.search(image["file_name"]))) / image["file_name"]
        collector.add_image(image["id"], path, f"image {image['id']}")
    for entry in document.annotations:
        record = f"annotation {entry['id']}"
        collector.add_caption(entry["image_id"], entry["caption"], record, key=entry["id"])
    return collector.finish()


def _annotation_file(annotations: Path, split: str | None) -> Path:
    if not annotations.is_dir():
        return annotations
    if split is None:
        raise UserError(f"{annotations} is a folder, so the split to read from it must be named")
    name = f"captions_{split}.json"
    candidates = [annotations / name, annotations / "annotations" / name]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(f"there is neither {candidates[0]} nor {candidates[1]}")


def _matched(match: re.Match[str] | None) -> str | None:
    return match.group() if match else None
