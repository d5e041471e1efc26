"""Records of captioned photos: JSON lines, from which a run resumes, and table rows."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

from captioner import files
from captioner.cli.output_options import PLACES, OutputOptions
from captioner.cli.program import report
from captioner.errors import UserError, counted
from captioner.tables import csv_text
from captioner.text.languages import ENGLISH
from captioner.vision.images import ImageSource
from captioner.vision.shards import source_status

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
    """Size and time of change of a photo's file or shard; empty without one."""
    status = source_status(photo)
    if status is None:
        return {}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return {"bytes": status.st_size, "modified": changed.isoformat()}


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


class JsonLines:
    """A file with a record a line, or standard output for `-`; a run resumes from the file.

    is_resumed: whether there are lines of an earlier run to keep.
    """

    def __init__(self, path: str, resume: bool) -> None:
        self._path = path
        self._renamed: dict[str, str] = {}  # Names of photos in the file that are spelled anew.
        self.is_resumed = resume and os.path.exists(path)
        self._mode = "a" if self.is_resumed else "w"

    def write(self, record: Record) -> None:
        """Append a record."""
        if self._path == "-":
            sys.stdout.write(files.json_text(record, indent=None))
            sys.stdout.flush()
            return
        with files.refuse_os_errors(f"cannot write {self._path}"):
            _write_lines(self._path, [record], self._mode)
        self._mode = "a"

    def resume(
        self,
        photos: Mapping[str, ImageSource],
        options: OutputOptions,
        is_finished: Callable[[str, Record], bool],
    ) -> Iterator[Record]:
        """The records to keep: of finished photos, and of others than `photos`; reports gone ones.

        Lines of the others stay until new ones replace them: a killed run loses none.
        """
        self._find_renamed(photos)
        gone: dict[str, int] = {}
        for record in self._latest_records():
            if "error" in record:
                continue
            self._check_origin(record, options)
            photo = record["image"]
            if photo in photos:
                if is_finished(photo, record):
                    yield record
                continue
            is_in_shard = any(map(os.path.isfile, Path(photo).parents))
            if photo != "-" and not os.path.lexists(photo) and not is_in_shard:
                gone[photo] = sum(map(os.path.lexists, record.get("files", {}).values()))
            yield record
        if gone:
            count = counted(len(gone), "record")
            files_left = counted(sum(gone.values()), "file")
            report(
                f"{self._path} keeps {count} of photos that are gone, {min(gone)} the first; "
                f"beside them stays what was written: {files_left}"
            )
        self.drop_replaced()  # And an unfinished last line, of a killed run.

    def drop_replaced(self) -> None:
        """Keep the last record of each photo."""
        with files.atomic_path(self._path) as temporary:
            _write_lines(temporary, self._latest_records(), "w")

    def _check_origin(self, record: Record, options: OutputOptions) -> None:
        if not record.get("model"):
            raise UserError(f"--jsonl {self._path} was not written by --jsonl; give another file")
        is_same_model = os.path.normpath(record["model"]) == os.path.normpath(options.model)
        if not is_same_model or record.get("language") != options.language:
            raise UserError(
                f"--jsonl {self._path} has captions of the model {record['model']} in the language "
                f"{record.get('language') or ENGLISH}; give another file, or --overwrite in place "
                "of --resume"
            )

    def _find_renamed(self, photos: Mapping[str, ImageSource]) -> None:
        """Find the records of these photos under other spellings of their paths."""
        recorded = {record["image"] for record in self._records()}
        unknown = recorded - photos.keys()
        new = photos.keys() - recorded
        if unknown and new:
            name_of = {files.real_path(photo): photo for photo in new}
            for photo in unknown:
                if name := name_of.get(files.real_path(photo)):
                    self._renamed[photo] = name

    def _latest_records(self) -> Iterator[Record]:
        latest = {record["image"]: number for number, record in enumerate(self._records())}
        for number, record in enumerate(self._records()):
            if latest[record["image"]] == number:
                yield record

    def _records(self) -> Iterator[Record]:
        """The records, without an unfinished last line, of a killed run."""
        with files.opened_file(self._path, "--jsonl") as file:
            while line := file.readline(_LONGEST_LINE):
                if line.strip() and (line.endswith(b"\n") or len(line) == _LONGEST_LINE):
                    try:
                        record = json.loads(line)
                        record["image"] = self._renamed.get(record["image"] + "", record["image"])
                    except (ValueError, TypeError, KeyError, RecursionError):
                        what = "holds no results of `captioner caption`; --overwrite replaces it"
                        raise UserError(f"--jsonl {self._path} {what}") from None
                    yield record


def _write_lines(path: str | Path, records: Iterable[Record], mode: str) -> None:
    with open(path, mode, encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(files.json_text(record, indent=None) for record in records)
