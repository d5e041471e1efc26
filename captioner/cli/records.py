"""Records of captioned photos: as JSON lines, from which a run resumes, and as rows of tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

from captioner import files
from captioner.cli.output_options import PLACES
from captioner.errors import UserError
from captioner.tables import csv_text
from captioner.vision.images import ImageSource
from captioner.vision.shards import ShardMember

Record = dict[str, Any]
"""A photo's `image`, `Caption.to_dict`, `files`, `model`, `bytes` and `modified`, or `error`."""

_OF_CAPTION = (
    "caption",
    "log_probability",
    "score",
    "confidence",
    "sure",
    "word_confidence",
    "language",
)
_OF_PHOTO = ("model", "bytes", "modified", "error")
_COLUMNS = ("image", "rank", *_OF_CAPTION, "overlay", "gif", "words", *PLACES, *_OF_PHOTO)
_NUMBERS = {"rank": "int32", "bytes": "int64", "sure": "bool"} | dict.fromkeys(
    ("log_probability", "score", "confidence"), "double"
)
_LONGEST_LINE = 2**26  # Bytes; a file of zeros would fill the memory.
TYPES = dict.fromkeys(_COLUMNS, "string") | _NUMBERS
"""In Parquet."""


def file_state(photo: ImageSource) -> Record:
    """Size and time of change of a photo's file, or shard; empty for standard input, or if gone."""
    file = photo.shard if isinstance(photo, ShardMember) else photo
    try:
        status = os.stat(file if isinstance(file, str) else "")
    except (OSError, ValueError):
        return {}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return {"bytes": status.st_size, "modified": changed.isoformat()}


def is_gone(photo: str) -> bool:
    """Whether there is neither the photo nor the shard that it is in."""
    places = (photo, *map(str, Path(photo).parents))
    return photo != "-" and not os.path.lexists(photo) and not any(map(os.path.isfile, places))


def rows_of(record: Record) -> Iterator[Record]:
    """One row a caption."""
    of_photo = {key: record.get(key) for key in ("image", *_OF_PHOTO)} | record.get("files", {})
    for rank, version in enumerate([record, *record.get("alternatives", [])], start=1):
        row = {**of_photo, "rank": rank, **{key: version.get(key) for key in _OF_CAPTION}}
        if scores := row["word_confidence"]:
            pairs = zip(version["words"], scores, strict=True)
            row["word_confidence"] = ", ".join(f"{w} {n:.2f}" for w, n in pairs if n is not None)
        yield row


def records_csv(records: Sequence[Record], is_excel: bool) -> str:
    """The rows, with the columns that have a value."""
    rows = list(chain.from_iterable(map(rows_of, records)))
    used = {name for row in rows for name, value in row.items() if value is not None}
    columns = [name for name in _COLUMNS if name in used.union(_COLUMNS[:5])]
    return csv_text(rows, columns, "\t" if is_excel else ",")


def write_lines(path: str | Path, records: Iterable[Record], mode: str = "w") -> None:
    """Write, or append, JSON lines."""
    with open(path, mode, encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(files.json_text(record, indent=None) for record in records)


def latest_records(path: str, renamed: Mapping[str, str]) -> Iterator[Record]:
    """The last record of each photo in JSON lines. renamed: their new names, by the old."""

    def records() -> Iterator[Record]:
        for record in read_lines(path):
            name = record["image"]
            yield {**record, "image": renamed.get(name, name)}

    latest = {record["image"]: number for number, record in enumerate(records())}
    for number, record in enumerate(records()):
        if latest[record["image"]] == number:
            yield record


def read_lines(path: str) -> Iterator[Record]:
    """The records of JSON lines, without an unfinished last line, of a killed run."""
    with files.opened_file(path, "--jsonl") as file:
        while line := file.readline(_LONGEST_LINE):
            if line.strip() and (line.endswith(b"\n") or len(line) == _LONGEST_LINE):
                try:
                    record = json.loads(line)
                    record["image"] + ""
                except (ValueError, TypeError, KeyError, RecursionError):
                    what = "holds no results of `captioner caption`; --overwrite replaces it"
                    raise UserError(f"--jsonl {path} {what}") from None
                yield record
