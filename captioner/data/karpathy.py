"""Karpathy's splits of COCO, Flickr8k and Flickr30k.

Karpathy and Fei-Fei 2015, *Deep Visual-Semantic Alignments for Generating Image Descriptions*; the
files are `dataset_coco.json`, `dataset_flickr8k.json` and `dataset_flickr30k.json`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from captioner.data.collector import CaptionCollector, image_folder, require_folder
from captioner.data.record_fields import checked, optional, records, required
from captioner.data.records import CaptionSet
from captioner.data.source_problems import OnProblem
from captioner.errors import UserError
from captioner.files import read_json


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
    on_problem: see `Problems`.
    check_files: whether the photos must exist.

    `image_id` is COCO's number, else the file name; the file's own tokens are kept. Raises
    `UserError` for a missing or ill-formed file and an unknown split, and as
    `CaptionCollector.finish` does.
    """
    where = f"split file {annotations}"
    entries = records(read_json(annotations, "split file"), "images", where)
    wanted = _wanted(entries, split, where)
    if check_files:
        require_folder(Path(images))
    folders: dict[str | None, Path] = {}
    collector = CaptionCollector(where, on_problem, check_files)
    for number, entry in enumerate(entries):
        record = f"image record {number} in {where}"
        file_name = required(entry, "filename", str, record)
        coco_id = optional(entry, "cocoid", int, record)
        folder = optional(entry, "filepath", str, record)
        sentences = records(entry, "sentences", record)
        captions = [_caption(sentence, record) for sentence in sentences]
        image_id = file_name if coco_id is None else str(coco_id)
        record = f"image {file_name} (record {number})"
        if not collector.is_in_split(image_id, entry["split"], record):
            continue
        if entry["split"] not in wanted:
            continue
        if folder not in folders:
            folders[folder] = image_folder(Path(images), folder)
        if collector.add_image(image_id, folders[folder] / file_name, record, coco_id):
            for place, (text, tokens) in enumerate(captions):
                sentence = f"sentence {place} of {record}"
                collector.add_caption(image_id, text, sentence, tokens=tokens)
    return collector.finish()


def _wanted(entries: list[dict[str, Any]], split: str | None, where: str) -> set[str]:
    present = {
        required(entry, "split", str, f"image record {number} in {where}")
        for number, entry in enumerate(entries)
    }
    if split is None:
        return present
    if split not in present:
        raise UserError(f"{where} has no split {split!r}, only {', '.join(sorted(present))}")
    return {"train", "restval"} if split == "train" else {split}


def _caption(sentence: dict[str, Any], record: str) -> tuple[str, list[str] | None]:
    where = f"a sentence of {record}"
    text = required(sentence, "raw", str, where)
    tokens = optional(sentence, "tokens", list, where)
    if tokens is not None:
        tokens = [checked(token, str, f"a token of {where}") for token in tokens]
    return text, tokens
