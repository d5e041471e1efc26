"""The captions of photos as JSON, JSON lines and CSV, which a later run can resume."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from captioner.csv_tables import csv_rows, csv_text
from captioner.errors import UserError
from captioner.files import (
    json_text,
    read_json,
    read_text,
    real_path,
    refuse_os_errors,
    try_all,
    write_text,
)
from captioner.text.languages import ENGLISH

Record = dict[str, Any]
"""A photo's `image`, `Caption.as_dict`, `files`, `model`, `bytes` and `modified`, or `error`."""

_NUMBERS = ("log_probability", "score", "confidence")
_OF_CAPTION = ("caption", *_NUMBERS, "sure", "language")
_FILES = ("overlay", "gif", "words", "xmp", "text")
_OF_PHOTO = ("model", "bytes", "modified", "error")
_COLUMNS = ("image", "rank", *_OF_CAPTION, *_FILES, *_OF_PHOTO)
_ALWAYS = _COLUMNS[:5]

_PAUSE = 10.0
"""Least time between two writes of whole tables, in times that the last one took."""


class CaptionTables:
    """Collects the record of each photo and writes the tables; None for those not wanted.

    json, csv: written as a whole, by `save_so_far` and `finish`. jsonl: a line a record, written as
    it comes. `-` is standard output, which gets JSON and CSV in the end. model: the name that goes
    into the records.
    """

    def __init__(
        self, json: str | None, jsonl: str | None, csv: str | None, model: str = ""
    ) -> None:
        self._model = model
        self._paths = {"jsonl": jsonl, "json": json, "csv": csv}
        self._records: list[Record] = []
        self._are_lines_begun = False
        self._resting_until = 0.0
        if list(self._paths.values()).count("-") > 1:
            first, second = (f"--{option}" for option in self._paths if self._paths[option] == "-")
            raise UserError(f"{first} and {second} cannot both be standard output")

    @property
    def takes_standard_output(self) -> bool:
        """Whether a table goes to standard output, where nothing else should go then."""
        return "-" in self._paths.values()

    def files(self) -> Iterator[tuple[str, Path]]:
        """The files, with their options."""
        for option, path in self._paths.items():
            if path and path != "-":
                yield option, Path(path)

    def resume(
        self,
        photos: Sequence[str],
        files_of: Callable[[str], Iterable[tuple[str, Path]]],
        language: str | None = None,
    ) -> set[str] | None:
        """Keep the records of an earlier run; return the photos that need no new caption.

        These have a record without an error, of the photo's size and time of change, and their
        files. Records of other photos are kept as well. Of several tables all are read; the first
        that has a photo's caption counts. None if there is no table to read.

        files_of: the files of a photo, with their options, which its record has to name and which
            have to exist.
        Raises `UserError` if no file is given, or it holds anything else or captions of another
        model or language.
        """
        given = dict(self.files())
        if not given:
            raise UserError("--resume needs a file of --json, --jsonl or --csv")
        tables = {option: path for option, path in given.items() if path.exists()}
        if not tables:
            return None
        records: dict[str, Record] = {}
        for option, path in tables.items():
            for record in _read(option, path):
                self._check_origin(record, language, f"--{option} {path}")
                kept = records.setdefault(real_path(record["image"]), record)
                if "error" in kept and "error" not in record:
                    records[real_path(record["image"])] = record
        by_path = {real_path(photo): photo for photo in photos}
        captioned = set()
        for place, record in records.items():
            photo = by_path.get(place)
            if "error" in record and (photo is not None or not os.path.isfile(place)):
                continue  # Of a folder, too: each run finds its errors anew.
            if photo is not None:
                named = record.get("files", {})
                if not all(_is_there(named.get(option), path) for option, path in files_of(photo)):
                    continue
                state = _state(photo)
                if not state or any(str(record.get(key)) != str(state[key]) for key in state):
                    continue
                captioned.add(place)
            self._records.append(record)
        return {photo for photo in photos if real_path(photo) in captioned}

    def _check_origin(self, record: Record, language: str | None, name: str) -> None:
        """Raise `UserError` for a caption of another model or language. name: of its table."""
        if "error" in record:
            return
        model = record.get("model") or self._model  # Older records do not say.
        is_same_model = model == self._model or real_path(model) == real_path(self._model)
        here, there = language or ENGLISH, record.get("language") or ENGLISH
        if is_same_model and here == there:
            return
        difference = f"language {there}, not {here}"
        if not is_same_model:
            difference = f"model {model}, not {self._model}"
        raise UserError(
            f"{name} has captions of the {difference}; give another file, or --overwrite in place "
            "of --resume"
        )

    def add(self, photo: str, record: Record) -> None:
        """Collect a photo's record, and write its line. Raises `UserError` if that fails."""
        model = {"model": self._model} if self._model else {}
        self._records.append({"image": photo, **record, **model, **_state(photo)})
        path = self._paths["jsonl"]
        if path == "-":
            sys.stdout.write(_lines(self._records[-1:]))
            sys.stdout.flush()
        elif not self._are_lines_begun:
            self._begin_lines()
        elif path:
            with (
                refuse_os_errors(f"cannot write {path}"),
                open(path, "a", encoding="utf-8", errors="backslashreplace") as file,
            ):
                file.write(_lines(self._records[-1:]))

    def save_so_far(self) -> None:
        """Write the whole tables, if they were not written just now. Errors are left to `finish`.

        Large tables, which take long, are written more seldom.
        """
        start = time.monotonic()
        if start >= self._resting_until:
            with contextlib.suppress(UserError):
                self.finish(is_last=False)
            end = time.monotonic()
            self._resting_until = end + _PAUSE * (end - start)

    def finish(self, is_last: bool = True) -> None:
        """Write the whole tables: files if there are records, standard output only in the end.

        Raises `UserError` if one cannot be written, after writing the others.
        """
        writers: list[Callable[[], object]] = [self._begin_lines]
        for option, form in (("json", json_text), ("csv", _csv_text)):
            path = self._paths[option]
            if path == "-" and is_last:
                writers.append(partial(sys.stdout.write, form(self._records)))
            elif path and path != "-" and self._records:
                writers.append(partial(write_text, path, form(self._records)))
        try_all(writers)

    def _begin_lines(self) -> None:
        """Write the lines of all records, unless some are written."""
        path = self._paths["jsonl"]
        if path and path != "-" and self._records and not self._are_lines_begun:
            write_text(path, _lines(self._records))
            self._are_lines_begun = True


def _is_there(named: str | None, path: Path) -> bool:
    """Whether what a record names is this path, and is there; long names are no files."""
    return named is not None and real_path(named) == real_path(path) and os.path.exists(path)


def _state(photo: str) -> Record:
    """A photo file's size and time of change; empty for standard input and missing files."""
    if photo == "-":
        return {}
    try:
        status = os.stat(photo)
    except (OSError, ValueError):
        return {}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return {"bytes": status.st_size, "modified": changed.isoformat()}


def _lines(records: Sequence[Record]) -> str:
    return "".join(json_text(record, indent=None) for record in records)


def _csv_text(records: Sequence[Record]) -> str:
    """One row a caption, with the columns that have a value."""
    rows = []
    for record in records:
        of_photo = {key: record.get(key) for key in ("image", *_OF_PHOTO)}
        for rank, version in enumerate([record, *record.get("alternatives", [])], start=1):
            of_caption = {key: version.get(key) for key in _OF_CAPTION}
            rows.append({**of_photo, **record.get("files", {}), "rank": rank, **of_caption})
    columns = [
        column
        for column in _COLUMNS
        if column in _ALWAYS or any(row.get(column) is not None for row in rows)
    ]
    return csv_text(columns, ([row.get(column) for column in columns] for row in rows))


class _Kept(BaseModel):
    """What is relied on in a record that was read."""

    image: str
    files: dict[str, str] = {}
    alternatives: list[dict[str, Any]] = []


def _read(option: str, path: Path) -> list[Record]:
    """The records of a table. Raises `UserError` if it holds anything else."""
    readers = {"json": read_json, "jsonl": _read_lines, "csv": _read_csv}
    try:
        records: list[Record] = readers[option](path)
        TypeAdapter(list[_Kept]).validate_python(records)
    except (ValueError, KeyError, IndexError, ValidationError):
        raise UserError(
            f"--{option} {path} holds no results of `captioner caption`; --overwrite replaces it"
        ) from None
    return records


def _read_lines(path: Path) -> list[Record]:
    """The records of JSON lines; a last line without its end, of a killed run, is left out."""
    with refuse_os_errors(f"cannot read {path}"):
        whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _read_csv(path: Path) -> list[Record]:
    """The records of a CSV table, without what it does not hold."""
    records: list[Record] = []
    for row in csv_rows(read_text(path)):
        filled = {key: value for key, value in row.items() if value}
        version: Record = {key: filled[key] for key in _OF_CAPTION if key in filled}
        version |= {key: float(version[key]) for key in _NUMBERS if key in version}
        if row["rank"] == "1":
            files = {key: filled[key] for key in _FILES if key in filled}
            of_photo = {key: filled[key] for key in _OF_PHOTO if key in filled}
            records.append({"image": row["image"], **version, "files": files, **of_photo})
        else:
            records[-1].setdefault("alternatives", []).append(version)
    return records
