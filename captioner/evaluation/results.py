"""Captions in the COCO result format: a JSON list of {"image_id": ..., "caption": ...}."""

from __future__ import annotations

import os
from collections.abc import Mapping

from captioner.data.example import ImageId
from captioner.errors import UserError
from captioner.files import read_json, write_json


def read_results(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read one caption an image, by the image's name as text; ignores other fields of a record.

    Raises `UserError`, naming the file and the record (from 0), for a file that is not a JSON list
    of objects, a missing field, a field of a wrong type, a repeated image, and no captions.
    """
    records = read_json(path, "results file")
    if not isinstance(records, list):
        raise UserError(f"results file {path} is not a list of records")
    captions: dict[str, str] = {}
    for index, record in enumerate(records):
        where = f"results file {path}, record {index}"
        if not isinstance(record, dict):
            raise UserError(f"{where} is not an object")
        for field in ("image_id", "caption"):
            if field not in record:
                raise UserError(f"{where} has no {field}")
        image, caption = record["image_id"], record["caption"]
        if type(image) not in (int, str):
            raise UserError(f"{where}: image_id {image!r} is neither a whole number nor a string")
        if not isinstance(caption, str):
            raise UserError(f"{where}: the caption of image {image!r} is not a string")
        if str(image) in captions:
            raise UserError(f"{where}: image {image!r} already has a caption")
        captions[str(image)] = caption
    if not captions:
        raise UserError(f"results file {path} has no captions")
    return captions


def write_results(path: str | os.PathLike[str], captions: Mapping[ImageId, str]) -> None:
    """Write one caption an image, in the mapping's order, atomically.

    Raises `UserError` if the file cannot be written.
    """
    write_json(
        path, [{"image_id": image, "caption": caption} for image, caption in captions.items()]
    )
