"""Writes the captions of photos as tables, drawings and a page, and resumes from JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from captioner.caption.caption import DRAWN_SIDE
from captioner.caption.captioner import Captioned
from captioner.cli.shared_options import check_files
from captioner.cli.sidecars import Sidecars
from captioner.csv_tables import csv_text
from captioner.errors import UserError
from captioner.files import (
    json_text,
    real_path,
    refuse_os_errors,
    remove_temporaries,
    try_all,
    write_text,
)
from captioner.outcomes import Failed
from captioner.render import PageItem, save_html, save_word_images
from captioner.render.save import PAGE_SUFFIXES, PICTURE_SUFFIXES, WORD_PICTURE
from captioner.text.languages import ENGLISH
from captioner.vision.images import load_image

Record = dict[str, Any]
"""A photo's `image`, `Caption.as_dict`, `files`, `model`, `bytes` and `modified`, or `error`."""

_TABLES = ("jsonl", "json", "csv")
_DRAWINGS = ("overlay", "gif", "words")
_SUFFIXES = {
    **{table: (f".{table}",) for table in _TABLES},
    **{"html": PAGE_SUFFIXES, "overlay": PICTURE_SUFFIXES, "gif": (".gif",), "words": ()},
}
"""The file name endings that fit each option."""

_OF_CAPTION = ("caption", "log_probability", "score", "confidence", "sure", "language")
_OF_PHOTO = ("model", "bytes", "modified", "error")
_COLUMNS = ("image", "rank", *_OF_CAPTION, *_DRAWINGS, "xmp", "text", *_OF_PHOTO)
_ALWAYS = _COLUMNS[:5]


@dataclass
class Outputs:
    """The output files of `captioner caption`; None for those not wanted.

    paths: the photos to caption. jsonl: a line a record, written as it comes; json, csv: the same
    records, written by `finish`; "-" is standard output. language: of translated captions. model:
    that writes them, as it was named. standard_input: the photo `-`. Other fields are options of
    the command. Drawings of photos from several folders are in folders like theirs.

    finished: the photos whose captions `resume` found in the JSON lines.
    """

    paths: Sequence[str]
    json: str | None = None
    jsonl: str | None = None
    csv: str | None = None
    html: str | None = None
    overlay: str | None = None
    gif: str | None = None
    words: str | None = None
    strength: float = 0.8
    sidecars: Sidecars = field(default_factory=Sidecars)
    language: str | None = None
    model: str = ""
    resume: bool = False
    overwrite: bool = False
    standard_input: bytes = b""
    finished: set[str] = field(default_factory=set, init=False)
    _records: list[Record] = field(default_factory=list, init=False)
    _page: list[PageItem] = field(default_factory=list, init=False)
    _has_lines: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"--strength {self.strength} is not between 0 and 1")
        for option in _SUFFIXES:
            self._check_kind(option, getattr(self, option))
        on_output = [f"--{table}" for table in _TABLES if getattr(self, table) == "-"]
        if len(on_output) > 1:
            raise UserError(f"{' and '.join(on_output)} cannot both be standard output")
        if self.resume and self.html:
            raise UserError("--resume cannot add to the page of --html; give one of the two")
        if self.resume and self.jsonl in (None, "-"):
            raise UserError("--resume needs --jsonl FILE; --json and --csv are written from it")
        self._names = _output_names(self.paths)
        self.sidecars.check(self.paths)
        continues = self.resume and self._read_finished()
        drawings = [
            file
            for photo in self._names
            if photo not in self.finished
            for file in self._drawings(photo)
        ]
        common = [(name, getattr(self, name)) for name in (*_TABLES, "html")]
        files = [(f"--{name}", path) for name, path in common if path not in (None, "-")]
        files += [(f"--{name}", os.fspath(path)) for name, path in drawings]
        check_files(files, self.overwrite or continues, folders=("--words",))
        word_folders = {path for name, path in drawings if name == "words"}
        for folder in word_folders | {Path(path).parent for _, path in files}:
            remove_temporaries(folder)

    @property
    def takes_standard_output(self) -> bool:
        """Whether a table goes to standard output, where nothing else should go then."""
        return "-" in (self.json, self.jsonl, self.csv)

    def add(self, item: Captioned | Failed) -> None:
        """Write a photo's own files and its JSON line, and collect its record for the tables.

        Raises `UserError` if something cannot be written, after doing the rest; the record has the
        error then.
        """
        if isinstance(item, Failed):
            self._add_record(item.name, {"error": item.reason})
            return
        record = item.caption.as_dict()
        files: dict[str, str] = {}
        if item.caption.words:
            try:
                item = self._drawable(item)
                parts = [partial(self._add_to_page, item)]
                for option, path in self._files_of(item.name):
                    parts.append(partial(self._write, option, path, item, files))
                try_all(parts)
            except UserError as error:
                record["error"] = str(error)
        if files:
            record["files"] = files
        self._add_record(item.name, record)
        if "error" in record:
            raise UserError(record["error"])

    def _drawable(self, item: Captioned) -> Captioned:
        """The caption with its photo as large as drawings are; the model may see fewer pixels."""
        if not any((self.html, self.overlay, self.gif, self.words)):
            return item
        source = self.standard_input if item.name == "-" else item.name
        photo = load_image(source, name=item.name, sufficient_side=DRAWN_SIDE)
        assert item.caption.region is not None
        return Captioned(item.name, item.caption.of_photo(photo, item.caption.region))

    def finish(self) -> None:
        """Write JSON, CSV and page. One that cannot be written does not stop the others."""
        writers: list[Callable[[], object]] = [self._begin_lines]
        for path, form in ((self.json, json_text), (self.csv, _csv_text)):
            if path == "-":
                writers.append(partial(sys.stdout.write, form(self._records)))
            elif path and self._records:
                writers.append(partial(write_text, path, form(self._records)))
        if self.html and self._page:
            writers.append(partial(save_html, self.html, self._page, strength=self.strength))
        try_all(writers)

    def _add_record(self, photo: str, record: Record) -> None:
        """Collect a photo's record, and write its line."""
        model = {"model": self.model} if self.model else {}
        self._records.append({"image": photo, **record, **model, **_state(photo)})
        if self.jsonl == "-":
            sys.stdout.write(_lines(self._records[-1:]))
            sys.stdout.flush()
        elif self.jsonl and self._has_lines:
            with (
                refuse_os_errors(f"cannot write {self.jsonl}"),
                open(self.jsonl, "a", encoding="utf-8", errors="backslashreplace") as file,
            ):
                file.write(_lines(self._records[-1:]))
        else:
            self._begin_lines()

    def _begin_lines(self) -> None:
        """Write the lines of all records, unless some are written."""
        if self.jsonl not in (None, "-") and self._records and not self._has_lines:
            write_text(self.jsonl, _lines(self._records))
            self._has_lines = True

    def _read_finished(self) -> bool:
        """Keep records of an earlier run, and find the photos that need no caption.

        These have a record without an error, of the photo's size and time of change, and their
        files. Records of other photos are kept as well. Returns whether there was a file.
        """
        assert self.jsonl is not None
        if not os.path.exists(self.jsonl):
            return False
        by_path: dict[str, list[str]] = {}
        for photo in self.paths:
            by_path.setdefault(real_path(photo), []).append(photo)
        latest = {real_path(record["image"]): record for record in _read_lines(self.jsonl)}
        for place, record in latest.items():
            self._check_origin(record)
            photos = by_path.get(place, [])
            if "error" in record and (photos or not os.path.isfile(place)):
                continue  # Of a folder, too: each run finds its errors anew.
            if photos:
                photo = photos[0]
                named = record.get("files", {})
                if not all(
                    _is_there(named.get(name), path) for name, path in self._files_of(photo)
                ):
                    continue
                state = _state(photo)
                if not state or any(record.get(key) != state[key] for key in state):
                    continue
                self.finished.update(photos)
            self._records.append(record)
        return True

    def _check_origin(self, record: Record) -> None:
        """Raise `UserError` for a caption of another model or language."""
        if "error" in record:
            return
        model = str(record.get("model", ""))
        is_same_model = model == self.model or real_path(model) == real_path(self.model)
        here, there = self.language or ENGLISH, record.get("language") or ENGLISH
        if is_same_model and here == there:
            return
        difference = f"language {there}, not {here}"
        if not is_same_model:
            difference = f"model {model}, not {self.model}"
        raise UserError(
            f"--jsonl {self.jsonl} has captions of the {difference}; give another file, or "
            "--overwrite in place of --resume"
        )

    def _drawings(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo's drawings, and the folder of its words, with their options."""
        name = self._names[photo]
        if self.overlay:
            yield "overlay", _output_path(self.overlay, name, ".png")
        if self.gif:
            yield "gif", _output_path(self.gif, name, ".gif")
        if self.words:
            yield "words", Path(self.words) / name

    def _files_of(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo's drawings and sidecars."""
        yield from self._drawings(photo)
        yield from self.sidecars.paths(photo)

    def _write(self, option: str, path: Path, item: Captioned, files: dict[str, str]) -> None:
        """Write one of `_files_of`, and put its path into `files`."""
        if option == "overlay":
            item.caption.overlay(path, _title(item), self.strength)
        elif option == "gif":
            item.caption.gif(path, self.strength)
        elif option == "words":
            self._remove_word_pictures(path)
            save_word_images(path, *item.caption.drawn(), strength=self.strength)
        else:
            self.sidecars.write(option, path, item.caption)
        files[option] = os.fspath(path)

    def _remove_word_pictures(self, folder: Path) -> None:
        """Remove what an earlier caption left; such a folder needs --overwrite or --resume."""
        photos = set(map(real_path, self.paths))
        with refuse_os_errors(f"cannot replace the pictures in {folder}"):
            for path in folder.glob("*.png"):
                if WORD_PICTURE.fullmatch(path.name) and real_path(path) not in photos:
                    path.unlink()

    def _add_to_page(self, item: Captioned) -> None:
        if self.html:
            self._page.append(item.caption.page_item(_title(item)))

    def _check_kind(self, option: str, path: str | None) -> None:
        """Raise `UserError` for a path that cannot be the option's file or folder."""
        if path == "":
            raise UserError(f"--{option} is empty; it should name a file or folder")
        if path is None or (path == "-" and option in _TABLES):
            return
        if path == "-":
            raise UserError(f"--{option} cannot go to standard output; name a file or folder")
        if option in _DRAWINGS and not _names_a_file(path):
            return
        if Path(path).suffix.lower() not in _SUFFIXES[option] and not Path(path).is_dir():
            folder = ["a slash for a folder"] if option in _DRAWINGS else []
            wanted = " or ".join([*_SUFFIXES[option], *folder])
            raise UserError(f"--{option} {path} must end in {wanted}")
        if option in _DRAWINGS and len(self.paths) > 1:
            raise UserError(
                f"--{option} {path} is one file, but there are {len(self.paths)} photos; "
                "give a folder, with a slash at its end"
            )


def _title(item: Captioned) -> str:
    """The name of the photo's file; none for standard input."""
    return "" if item.name == "-" else Path(item.name).name


def _names_a_file(path: str) -> bool:
    return bool(Path(path).suffix) and not path.endswith(("/", os.sep)) and not Path(path).is_dir()


def _output_path(path: str, name: str, suffix: str) -> Path:
    return Path(path) if _names_a_file(path) else Path(path) / f"{name}{suffix}"


def _output_names(paths: Sequence[str]) -> dict[str, str]:
    """The path of every photo below the folder that holds all of them, without its suffix.

    Photos that would share a name keep their suffix; where they still do, they are numbered. Names
    that differ in case alone count as shared, as on many file systems. `-` is standard input.
    """
    folders = {path: Path(os.path.abspath(path)).parent.parts[1:] for path in paths if path != "-"}
    is_common = [len(set(level)) == 1 for level in zip(*folders.values(), strict=False)]
    top = [*is_common, False].index(False)
    plain: dict[str, str] = {}
    for path in paths:
        stem = "standard_input" if path == "-" else Path(path).stem
        plain[path] = os.path.join(*folders.get(path, ())[top:], stem)
    shared = Counter(name.casefold() for name in plain.values())
    taken: set[str] = set()
    names: dict[str, str] = {}
    for path, name in plain.items():
        if shared[name.casefold()] > 1:
            name += Path(path).suffix
        unique, number = name, 2
        while unique.casefold() in taken:
            unique, number = f"{name}-{number}", number + 1
        taken.add(unique.casefold())
        names[path] = unique
    return names


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


def _read_lines(path: str) -> list[Record]:
    """The records of JSON lines; a last line without its end, of a killed run, is left out."""
    with refuse_os_errors(f"cannot read {path}"):
        whole = Path(path).read_bytes().rpartition(b"\n")[0]
    try:
        records: list[Record] = [json.loads(line) for line in whole.splitlines() if line.strip()]
        TypeAdapter(list[_Kept]).validate_python(records)
    except (ValueError, RecursionError, ValidationError):
        raise UserError(
            f"--jsonl {path} holds no results of `captioner caption`; --overwrite replaces it"
        ) from None
    return records
