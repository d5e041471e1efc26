"""Writes the captions of photos as tables, drawings and a page, and resumes from JSON lines."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from captioner.caption.photos import Captioned
from captioner.cli.descriptions import PLACES, Descriptions
from captioner.cli.drawings import Drawings, Drawn
from captioner.cli.shared_options import check_files
from captioner.csv_tables import csv_text
from captioner.errors import UserError
from captioner.files import (
    atomic_path,
    check_writable,
    file_lock,
    json_text,
    real_path,
    refuse_os_errors,
    remove_temporaries,
    try_all,
    write_text,
)
from captioner.parquet_tables import AddRows, parquet_table
from captioner.render.page import PageItem, save_html
from captioner.render.save import PAGE_SUFFIXES, check_suffix
from captioner.text.languages import ENGLISH
from captioner.vision.images import ImageSource
from captioner.vision.shards import ShardMember

Record = dict[str, Any]
"""A photo's `image`, `Caption.to_dict`, `files`, `model`, `bytes` and `modified`, or `error`."""

_TABLES = ("jsonl", "json", "csv", "parquet")
_OF_CAPTION = ("caption", "log_probability", "score", "confidence", "sure", "language")
_OF_PHOTO = ("model", "bytes", "modified", "error")
_COLUMNS = ("image", "rank", *_OF_CAPTION, "overlay", "gif", "words", *PLACES, *_OF_PHOTO)
_ALWAYS = _COLUMNS[:5]
_NUMBERS = {"rank": "int32", "bytes": "int64", "sure": "bool"} | dict.fromkeys(
    ("log_probability", "score", "confidence"), "double"
)
_TYPES = dict.fromkeys(_COLUMNS, "string") | _NUMBERS
"""In Parquet."""


@contextmanager
def locked_tables(options: argparse.Namespace) -> Iterator[None]:
    """Lock the tables and the page: a second process would overwrite their records."""
    paths: dict[str, str] = {}
    for name in (*_TABLES, "html"):
        path = getattr(options, name)
        if path and path != "-":
            check_writable(f"--{name}", os.path.dirname(path))
            paths[real_path(path)] = path
    with ExitStack() as stack:
        for path in paths.values():
            stack.enter_context(file_lock(path))
        yield


class Outputs:
    """Writes captions where the options of `captioner caption` say.

    --jsonl has a line a photo, written as its batch is captioned; --json, --csv and --parquet have
    the same records, written by `finish`. Memory holds those of JSON and CSV until then; Parquet's
    are in a file. Drawings of photos from several folders are in folders like theirs.

    photos: to caption, by name. language: of translated captions.
    finished: the photos whose captions --resume found in the JSON lines.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        photos: Mapping[str, ImageSource],
        language: str | None = None,
    ) -> None:
        _check_options(options)
        self.finished: set[str] = set()
        self.drawings = Drawings(options, photos)
        self._descriptions = Descriptions(options, photos)
        self._options = options
        self._photos = photos
        self._language = language
        self._records: list[Record] = []
        self._page: list[PageItem] = []
        self._has_lines = False
        self._kept: set[int] = set()  # lines of an earlier run
        continues = options.resume and os.path.exists(options.jsonl)
        if continues:
            self._read_finished()
        common = [(f"--{name}", getattr(options, name)) for name in (*_TABLES, "html")]
        files = [(option, path) for option, path in common if path not in (None, "-")]
        for photo in photos:
            if photo not in self.finished:
                files += [
                    (f"--{name}", os.fspath(path)) for name, path in self.drawings.files(photo)
                ]
        check_files(files, options.overwrite or continues, folders=("--words",))
        folders = {path if option == "--words" else Path(path).parent for option, path in files}
        for folder in map(Path, folders):
            remove_temporaries(folder)
        self._parquet = ExitStack()
        self._add_rows: AddRows | None = None
        if options.json or options.csv or options.parquet:  # Else, no need to read the lines again.
            for record in self._kept_records():
                self._collect(record)

    @property
    def takes_standard_output(self) -> bool:
        """Whether a table goes to standard output, where nothing else should go then."""
        return "-" in (getattr(self._options, table) for table in _TABLES)

    def add(self, drawn: Drawn) -> str:
        """Write what is beside a photo and its JSON line; collect its record for the tables.

        Returns why it failed or what could not be written, which the record has as well; "" if all
        went well.
        """
        item, problems = drawn.item, [*drawn.problems]
        if drawn.page:
            self._page.append(drawn.page)
        if item.name in self.finished:  # It was captioned for the page.
            return "; ".join(problems)
        record: Record = {"image": item.name}
        if isinstance(item, Captioned):
            record |= item.caption.to_dict()
            files, more = self._descriptions.write(item.name, item.caption)
            problems += more
            if files := {**drawn.files, **files}:
                record["files"] = files
        error = "; ".join(problems)
        if error:
            record["error"] = error
        state = _state(self._photos.get(item.name, item.name))
        record |= {"model": self._options.model, **state}
        self._write_line(record)
        self._collect(record)
        return error

    def finish(self) -> None:
        """Write JSON, CSV and page. One that cannot be written does not stop the others."""
        options = self._options
        writers: list[Callable[[], object]] = [self._parquet.close]
        self._descriptions.close()
        # Excel in any language splits tabs of UTF-16, and knows umlauts by its byte order mark.
        is_for_excel = options.csv_for == "excel"
        csv_form = partial(_csv_text, delimiter="\t" if is_for_excel else ",")
        tables = (
            (options.json, json_text, "utf-8"),
            (options.csv, csv_form, "utf-16" if is_for_excel else "utf-8"),
        )
        for path, form, encoding in tables:
            if path == "-":
                writers.append(partial(sys.stdout.write, form(self._records)))
            elif path and self._records:
                writers.append(partial(write_text, path, form(self._records), encoding))
        if options.html and self._page:
            writers.append(partial(save_html, options.html, self._page, options.strength))
        try_all(writers)

    def _write_line(self, record: Record) -> None:
        """Write a record as a line; the first time those of an earlier run before it."""
        path = self._options.jsonl
        if path == "-":
            sys.stdout.write(json_text(record, indent=None))
            sys.stdout.flush()
        elif path and self._has_lines:
            with refuse_os_errors(f"cannot write {path}"):
                _append(path, [record])
        elif path:
            with atomic_path(path) as temporary:
                _append(temporary, chain(self._kept_records(), [record]))
            self._has_lines = True

    def _collect(self, record: Record) -> None:
        """Take a record up for the other tables."""
        if self._options.json or self._options.csv:
            self._records.append(record)
        if self._options.parquet:
            if self._add_rows is None:  # Without records, the file that is there stays.
                table = parquet_table(self._options.parquet, _TYPES)
                self._add_rows = self._parquet.enter_context(table)
            self._add_rows(_rows([record]))

    def _read_finished(self) -> None:
        """Keep captions of an earlier run, and find the photos that need none.

        These have the size and time of change of their record, and their files. Captions of other
        photos are kept as well.
        """
        path = self._options.jsonl
        latest = {record["image"]: number for number, record in _read_lines(path)}
        for number, record in _read_lines(path):
            photo = record["image"]
            if "error" in record or latest[photo] != number:
                continue
            self._check_origin(record)
            if photo not in self._photos:
                self._kept.add(number)
            elif self._is_finished(photo, record):
                self._kept.add(number)
                self.finished.add(photo)

    def _kept_records(self) -> Iterator[Record]:
        if self._kept:
            lines = _read_lines(self._options.jsonl)
            yield from (record for number, record in lines if number in self._kept)

    def _is_finished(self, photo: str, record: Record) -> bool:
        files, state = record.get("files", {}), _state(self._photos[photo])
        return bool(state and state.items() <= record.items()) and all(
            files.get(option) == os.fspath(path) and path.exists()
            for option, path in chain(
                self.drawings.files(photo),
                self._descriptions.files(photo, record.get("confidence")),
            )
        )

    def _check_origin(self, record: Record) -> None:
        """Raise `UserError` for a caption of another model or language."""
        model, language = record.get("model", ""), record.get("language") or ENGLISH
        is_same_model = Path(model) == Path(self._options.model)
        if not is_same_model or language != (self._language or ENGLISH):
            raise UserError(
                f"--jsonl {self._options.jsonl} has captions of the model {model} in the language "
                f"{language}; give another file, or --overwrite in place of --resume"
            )


def _check_options(options: argparse.Namespace) -> None:
    """Raise `UserError` for outputs that cannot be, or not together."""
    if options.parquet == "-":
        raise UserError("--parquet cannot be standard output; name a file")
    if [options.jsonl, options.json, options.csv].count("-") > 1:
        raise UserError("two tables cannot both be standard output")
    if options.resume and options.jsonl in (None, "-"):
        raise UserError("--resume needs --jsonl FILE; the other tables are written from it")
    if options.csv_for and options.csv in (None, "-"):
        raise UserError("--csv-for needs --csv FILE")
    if options.html:
        check_suffix(options.html, PAGE_SUFFIXES)


def _state(photo: ImageSource) -> Record:
    """Size and time of change of a photo's file, or shard; empty for standard input, or if gone."""
    file = photo.shard if isinstance(photo, ShardMember) else photo
    try:
        status = os.stat(file if isinstance(file, str) else "")
    except (OSError, ValueError):
        return {}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return {"bytes": status.st_size, "modified": changed.isoformat()}


def _append(path: str | Path, records: Iterable[Record]) -> None:
    """Append records to JSON lines."""
    with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json_text(record, indent=None) for record in records)


def _rows(records: Sequence[Record]) -> list[Record]:
    """One row a caption."""
    rows = []
    for record in records:
        of_photo = {key: record.get(key) for key in ("image", *_OF_PHOTO)}
        for rank, version in enumerate([record, *record.get("alternatives", [])], start=1):
            of_caption = {key: version.get(key) for key in _OF_CAPTION}
            rows.append({**of_photo, **record.get("files", {}), "rank": rank, **of_caption})
    return rows


def _csv_text(records: Sequence[Record], delimiter: str) -> str:
    """The rows, with the columns that have a value."""
    rows = _rows(records)
    columns = [
        column
        for column in _COLUMNS
        if column in _ALWAYS or any(row.get(column) is not None for row in rows)
    ]
    return csv_text(rows, columns, delimiter)


def _read_lines(path: str) -> Iterator[tuple[int, Record]]:
    """The records of JSON lines, numbered; without an unfinished last line, of a killed run."""
    with refuse_os_errors(f"cannot read {path}"), open(path, "rb") as file:
        for number, line in enumerate(file):
            if not line.strip() or not line.endswith(b"\n"):
                continue
            try:
                record = json.loads(line)
                is_result = isinstance(record["image"], str)
            except (ValueError, TypeError, KeyError, RecursionError):
                is_result = False
            if not is_result:
                raise UserError(
                    f"--jsonl {path} holds no results of `captioner caption`; --overwrite "
                    "replaces it"
                )
            yield number, record
