"""Karpathy's splits of COCO, Flickr8k and Flickr30k.

Karpathy and Fei-Fei 2015, *Deep Visual-Semantic Alignments for Generating Image Descriptions*; the
files are `dataset_coco.json`, `dataset_flickr8k.json` and `dataset_flickr30k.json`.
"""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Annotated

from pydantic import FailFast, with_config
from typing_extensions import NotRequired, TypedDict

from captioner.data.collector import CaptionCollector, image_folder, read_document
from captioner.data.records import CaptionSet
from captioner.data.source_problems import OnProblem
from captioner.errors import UserError
from captioner.schema import RECORD, Records, Text


@with_config(RECORD)
class _Sentence(TypedDict):
    raw: Text
    tokens: NotRequired[list[Text]]


@with_config(RECORD)
class _Entry(TypedDict):
    filename: Text
    split: Text
    sentences: list[_Sentence]
    cocoid: NotRequired[int]
    filepath: NotRequired[Text]


class _SplitFile(Records):
    images: Annotated[list[_Entry], FailFast()]


def read_karpathy(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    split: str | None = None,
    on_problem: OnProblem = "refuse",
    check_files: bool = True,
) -> CaptionSet:
    """Read one of Karpathy's splits.

    annotations: the JSON file.
    images: the folder of the photos or, for COCO, of `train2014` and `val2014`.
    split: train, val, test or, for COCO, restval; None: the whole file. "train" includes restval,
        the rest of COCO's validation set: 113,287 photos with it, 82,783 without.
    on_problem, check_files: see `CaptionCollector`.

    `image_id` is COCO's number, else the file name; the file's own tokens are kept. Raises
    `UserError` for a missing or ill-formed file and an unknown split, and as
    `CaptionCollector.finish` does.
    """
    where = f"split file {annotations}"
    entries = read_document(_SplitFile, annotations, "split file", "karpathy").images
    present = {entry["split"] for entry in entries}
    if split is not None and split not in present:
        raise UserError(f"{where} has no split {split!r}, only {', '.join(sorted(present))}")
    wanted = {"train", "restval"} if split == "train" else {split}
    folder_of = cache(partial(image_folder, Path(images)))
    collector = CaptionCollector(where, on_problem, check_files)
    for number, entry in enumerate(entries):
        file_name = entry["filename"]
        image_id = entry.get("cocoid", file_name)
        record = f"image {file_name} (record {number})"
        if not collector.is_in_split(image_id, entry["split"], record):
            continue
        if split is not None and entry["split"] not in wanted:
            continue
        path = folder_of(entry.get("filepath")) / file_name
        if collector.add_image(image_id, path, record):
            for place, sentence in enumerate(entry["sentences"]):
                name = f"sentence {place} of {record}"
                collector.add_caption(image_id, sentence["raw"], name, None, sentence.get("tokens"))
    return collector.finish()
