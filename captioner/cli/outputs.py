"""Writes the captions of photos as tables, drawings and a page, and resumes from JSON lines."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
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
    check_writable,
    file_lock,
    json_text,
    real_path,
    refuse_os_errors,
    remove_temporaries,
    try_all,
    write_text,
)
from captioner.render import PageItem, save_html
from captioner.render.save import PAGE_SUFFIXES, check_suffix
from captioner.text.languages import ENGLISH

Record = dict[str, Any]
"""A photo's `image`, `Caption.to_dict`, `files`, `model`, `bytes` and `modified`, or `error`."""

_TABLES = ("jsonl", "json", "csv")
_OF_CAPTION = ("caption", "log_probability", "score", "confidence", "sure", "language")
_OF_PHOTO = ("model", "bytes", "modified", "error")
_COLUMNS = ("image", "rank", *_OF_CAPTION, "overlay", "gif", "words", *PLACES, *_OF_PHOTO)
_ALWAYS = _COLUMNS[:5]


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

    --jsonl has a line a photo, written as its batch is captioned; --json and --csv have the same
    records, written by `finish`. Drawings of photos from several folders are in folders like
    theirs.

    photos: to caption; `standard_input` is the content of "-". language: of translated captions.
    finished: the photos whose captions --resume found in the JSON lines.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        photos: Sequence[str],
        language: str | None = None,
        standard_input: bytes | None = None,
    ) -> None:
        _check_options(options)
        self.finished: set[str] = set()
        self.drawings = Drawings(options, photos, standard_input)
        self._descriptions = Descriptions(options, photos)
        self._options = options
        self._photos = frozenset(photos)
        self._language = language
        self._records: list[Record] = []
        self._page: list[PageItem] = []
        self._has_lines = False
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
        self._records.append({**record, "model": self._options.model, **_state(item.name)})
        self._write_line()
        return error

    def finish(self) -> None:
        """Write JSON, CSV and page. One that cannot be written does not stop the others."""
        options, writers = self._options, []
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

    def _write_line(self) -> None:
        """Write the last record as a line; the first time all, with those of an earlier run."""
        path = self._options.jsonl
        if path == "-":
            sys.stdout.write(_lines(self._records[-1:]))
            sys.stdout.flush()
        elif path and self._has_lines:
            with (
                refuse_os_errors(f"cannot write {path}"),
                open(path, "a", encoding="utf-8", errors="backslashreplace") as file,
            ):
                file.write(_lines(self._records[-1:]))
        elif path:
            write_text(path, _lines(self._records))
            self._has_lines = True

    def _read_finished(self) -> None:
        """Keep captions of an earlier run, and find the photos that need none.

        These have the size and time of change of their record, and their files. Captions of other
        photos are kept as well.
        """
        latest = {record["image"]: record for record in _read_lines(self._options.jsonl)}
        for photo, record in latest.items():
            if "error" in record:
                continue
            self._check_origin(record)
            if photo not in self._photos:
                self._records.append(record)
            elif self._is_finished(photo, record):
                self._records.append(record)
                self.finished.add(photo)

    def _is_finished(self, photo: str, record: Record) -> bool:
        files, state = record.get("files", {}), _state(photo)
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
    if [options.jsonl, options.json, options.csv].count("-") > 1:
        raise UserError("two tables cannot both be standard output")
    if options.resume and options.jsonl in (None, "-"):
        raise UserError("--resume needs --jsonl FILE; --json and --csv are written from it")
    if options.csv_for and options.csv in (None, "-"):
        raise UserError("--csv-for needs --csv FILE")
    if options.html:
        check_suffix(options.html, PAGE_SUFFIXES)


def _state(photo: str) -> Record:
    """A photo file's size and time of change; empty for standard input and missing files."""
    try:
        status = os.stat(photo)
    except (OSError, ValueError):
        return {}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return {"bytes": status.st_size, "modified": changed.isoformat()}


def _lines(records: Sequence[Record]) -> str:
    return "".join(json_text(record, indent=None) for record in records)


def _csv_text(records: Sequence[Record], delimiter: str) -> str:
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
    return csv_text(rows, columns, delimiter)


def _read_lines(path: str) -> list[Record]:
    """The records of JSON lines; a last line without its end, of a killed run, is left out."""
    with refuse_os_errors(f"cannot read {path}"):
        whole = Path(path).read_bytes().rpartition(b"\n")[0]
    try:
        records: list[Record] = [json.loads(line) for line in whole.splitlines() if line.strip()]
        if all(isinstance(record["image"], str) for record in records):
            return records
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise UserError(
        f"--jsonl {path} holds no results of `captioner caption`; --overwrite replaces it"
    )
