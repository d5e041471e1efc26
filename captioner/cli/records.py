"""Records of captioned photos: JSON lines, from which a run resumes, and table rows."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import Field, TypeAdapter
from typing_extensions import Required, TypedDict

import captioner
from captioner import files
from captioner.caption.caption import sentence
from captioner.caption.config import captioner_config
from captioner.cli.output_options import PLACES, OutputOptions
from captioner.cli.program import report
from captioner.errors import UserError, counted
from captioner.loading import LANGUAGES
from captioner.model_folders import ModelFolder, model_folder
from captioner.schema import Text, plain_type, to_mapping
from captioner.tables import csv_text
from captioner.text.languages import ENGLISH
from captioner.vision.images import ImageSource
from captioner.vision.shards import source_status

Record = dict[str, Any]
"""A photo's `image`, `Caption.to_dict`, `files`, `origin_of`, `file_state`, or `error`."""

_Name = Annotated[Text, Field(min_length=1)]


class _OfCaption(TypedDict, total=False):
    """The fields of a caption that are read again, and are columns."""

    caption: Text
    log_probability: float | None
    score: float | None
    confidence: float | None
    sure: bool | None
    word_confidence: list[float | None] | None
    language: Text | None
    words: list[Text]


class _OfPhoto(TypedDict, total=False):
    """Those of a photo."""

    by: Text
    model: Required[_Name]
    bytes: int
    modified: Text
    error: Text


class _Saved(_OfCaption, _OfPhoto, total=False):
    """The fields of a record that are read again; others are kept."""

    image: Required[_Name]
    alternatives: list[_OfCaption]
    original: _OfCaption | None
    files: dict[str, Text]
    search: dict[str, Any]


_SAVED = TypeAdapter(_Saved)
_NUMBERS = {float: "double", bool: "bool", int: "int64"}
_KINDS: dict[Any, str] = {**_NUMBERS, list[Text]: "string[]", list[float | None]: "double[]"}


def _types(fields: type) -> dict[str, str]:
    kinds = fields.__annotations__.items()
    return {name: _KINDS.get(plain_type(kind), "string") for name, kind in kinds}


_DRAWN = dict.fromkeys(("overlay", "gif", "words_folder", *PLACES), "string")
TYPES = {"image": "string", "rank": "int32"} | _types(_OfCaption) | _DRAWN | _types(_OfPhoto)
"""The columns of tables, as in Parquet; CSV has no `words`."""
_LONGEST_LINE = 2**26  # Bytes; a file of zeros would fill the memory.
_BEGINNING = b'{"image": '  # Of a line.


def file_state(status: os.stat_result | None) -> Record:
    """Size and time of change of a photo's file or shard; empty without one."""
    if status is None:
        return {}
    try:
        changed = datetime.fromtimestamp(status.st_mtime, timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):  # Its years are 1 to 9999.
        changed = f"@{status.st_mtime}"  # Seconds since 1970, as `date -d` reads them.
    return {"bytes": status.st_size, "modified": changed}


def origin_of(options: OutputOptions) -> Record:
    """What a run's captions come from, as records have it: digests of weights, search, version."""
    origin: Record = {"model": options.model, "version": captioner.__version__}
    with suppress(UserError):  # From Python, a model may have any name.
        folder = ModelFolder(model_folder(options.model))
        origin["digest"] = folder.digest
        origin["search"] = to_mapping(captioner_config(folder).search.override(**options.search))
        if language := options.language:
            translator = options.translator or LANGUAGES.get(language.partition("-")[0], "")
            origin["translator"] = ModelFolder(model_folder(translator)).digest
    return origin


def is_by_person(record: Mapping[str, Any]) -> bool:
    """Whether a person wrote the caption of a record: it is marked, or differs from its words."""
    versions = [record, record.get("original") or {}, *record.get("alternatives", [])]
    return record.get("by") == "person" or any(map(_is_edited, versions))


def _is_edited(version: Mapping[str, Any]) -> bool:
    shown, words = version.get("caption", "").split(), version.get("words")
    return words is not None and shown not in (sentence(words).split(), " ".join(words).split())


def rows_of(record: Record) -> Iterator[Record]:
    """One row a caption."""
    written = record.get("files", {})
    of_photo = {key: record.get(key) for key in ("image", *_OfPhoto.__annotations__)} | written
    of_photo["words_folder"] = written.get("words")
    for rank, version in enumerate([record, *record.get("alternatives", [])], start=1):
        of_caption = {key: version.get(key) for key in _OfCaption.__annotations__}
        yield {**of_photo, "rank": rank, **of_caption}


def records_csv(records: Sequence[Record], is_excel: bool) -> str:
    """The rows, with the columns that have a value."""
    rows = list(chain.from_iterable(map(rows_of, records)))
    for row in rows:
        words = row.pop("words")
        if scores := row["word_confidence"]:
            pairs = zip(words, scores, strict=False)
            row["word_confidence"] = ", ".join(f"{w} {n:.2f}" for w, n in pairs if n is not None)
    used = {name for row in rows for name, value in row.items() if value is not None}
    columns = [name for name in TYPES if name in used.union([*TYPES][:5])]
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
        self._append(files.json_text(record, indent=None))

    def resume(
        self, photos: Mapping[str, ImageSource], options: OutputOptions, origin: Record
    ) -> Iterator[Record]:
        """The record of each photo, but for failures; those by people are marked.

        Reports photos that are gone, and lines without a record, which are moved to another file.
        All records stay in the file until new ones replace them: a killed run loses none. A missing
        file is made: a run that is killed before its first record can be resumed.
        """
        if not self.is_resumed:
            if not os.path.exists(self._path):
                self._append("")
            return
        self._check(photos, options, origin)
        gone: dict[str, int] = {}
        for record in self._rewrite():
            photo = record["image"]
            if "error" in record and "by" not in record:
                continue
            if photo not in photos and not any(map(_exists, (photo, self._from_table(photo)))):
                gone[photo] = sum(map(os.path.lexists, record.get("files", {}).values()))
            yield record
        if gone:
            count = counted(len(gone), "record")
            files_left = counted(sum(gone.values()), "file")
            report(
                f"{self._path} keeps {count} of photos that are gone, {min(gone)} the first; "
                f"beside them stays what was written: {files_left}"
            )

    def drop_replaced(self) -> None:
        """Keep the last record of each photo."""
        for _ in self._rewrite():
            pass

    def _rewrite(self) -> Iterator[Record]:
        """Write the file anew: each photo's last record, which is yielded, or else a person's."""
        last: dict[str, tuple[bool, int]] = {}
        for number, _, record in self._lines():
            if record:
                place = is_by_person(record), number
                last[record["image"]] = max(last.get(record["image"], place), place)
        with files.atomic_path(self._path) as temporary, _opened(temporary, "w") as file:
            for number, line, record in self._lines():
                if record is None:
                    other = f"{self._path}.left_out"
                    what = f"no record of `captioner caption`: it is moved to {other}"
                    report(f"line {number} of {self._path} is {what}")
                    with open(other, "ab") as left_out:
                        left_out.write(line.removesuffix(b"\n") + b"\n")
                elif last[record["image"]][1] == number:
                    if last[record["image"]][0] and record.get("by") != "person":
                        record["by"] = "person"
                        for option in PLACES:  # Which have the words before.
                            record.get("files", {}).pop(option, None)
                    file.write(files.json_text(record, indent=None))
                    yield record

    def _append(self, text: str) -> None:
        if self._path == "-":
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        problem = f"cannot write {self._path}"
        with files.refuse_os_errors(problem), _opened(self._path, self._mode) as file:
            file.write(text)
        self._mode = "a"

    def _check(
        self, photos: Mapping[str, ImageSource], options: OutputOptions, origin: Record
    ) -> None:
        """Refuse records of another origin; report old ones and lines without a record."""
        states: dict[str, Record] = {}  # Of photos by names that the run does not have.
        lines = ours = undigested = 0
        for _, _, record in self._lines():
            lines += 1
            if record is None:
                continue
            ours += 1
            if "error" not in record:
                self._check_origin(record, options, origin)
                undigested += "digest" not in record
            if record["image"] not in photos:
                states[record["image"]] = {key: record.get(key) for key in ("bytes", "modified")}
        if lines and not ours:
            what = "holds no results of `captioner caption`; give another file"
            raise UserError(f"--jsonl {self._path} {what}")
        if undigested:
            count = counted(undigested, "record")
            report(f"{self._path} keeps {count} of an older version, without a digest of weights")
        self._find_renamed(photos, states)

    def _check_origin(self, record: Record, options: OutputOptions, origin: Record) -> None:
        was = {**record.get("search", {}), **record, "language": record.get("language") or ENGLISH}
        now = {**options.search, **origin, "language": options.language or ENGLISH}
        names = [name for name in ("digest", "translator", *options.search) if name in was]
        differing = [name for name in ("language", *names) if was[name] != now.get(name)]
        is_named_so = os.path.normpath(was["model"]) == os.path.normpath(now["model"])
        if (differing or ("digest" not in was and not is_named_so)) and not options.resume_any:
            raise UserError(
                f"--jsonl {self._path} has captions of {_named(was, differing)}; this run's are of "
                f"{_named(now, differing)}: give another file, or --resume-any"
            )

    def _find_renamed(
        self, photos: Mapping[str, ImageSource], states: Mapping[str, Record]
    ) -> None:
        """Find records of these photos under other spellings, also from another working folder.

        states: of the photos in the file that are not in the run.
        """
        name_of = {files.real_path(photo): photo for photo in photos if states}
        same_file = defaultdict(list)
        for photo in name_of.values():
            same_file[os.path.basename(photo)].append(photo)
        for old, state in states.items():
            found = [name_of.get(files.real_path(old))]
            if not _exists(old):
                moved = [
                    name for name in same_file[os.path.basename(old)] if is_same_path(old, name)
                ]
                moved = [name for name in moved if file_state(source_status(photos[name])) == state]
                found += [name_of.get(files.real_path(self._from_table(old)))]
                found += moved if len(moved) == 1 else []
            if name := next(filter(None, found), None):
                self._renamed[old] = name

    def _from_table(self, path: str) -> str:
        """A path as from the folder of the table."""
        return os.path.join(os.path.dirname(self._path), path)

    def _lines(self) -> Iterator[tuple[int, bytes, Record | None]]:
        """Number, content and record of the lines, but for an unfinished one of a killed run."""
        with files.opened_file(self._path, "--jsonl") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                if len(line) == _LONGEST_LINE:
                    raise UserError(f"--jsonl {self._path} has an endless line; give another file")
                if record := _parsed(line):
                    record["image"] = self._renamed.get(record["image"], record["image"])
                is_begun = _BEGINNING.startswith(line[: len(_BEGINNING)])
                is_unfinished = is_begun and not line.endswith(b"\n")
                if record or (line.strip() and not is_unfinished):
                    yield number, line, record


def is_same_path(recorded: str, path: str | Path) -> bool:
    """Whether a recorded path is this one, perhaps from another working folder: the end of it."""
    if files.real_path(recorded) == files.real_path(path):
        return True
    parts = [part for part in Path(recorded).parts if part != os.pardir]
    return not _exists(recorded) and (*parts,) == Path(os.path.abspath(path)).parts[-len(parts) :]


def _exists(photo: str) -> bool:
    """Whether there is a photo, or the shard of its name."""
    return photo == "-" or os.path.lexists(photo) or any(map(os.path.isfile, Path(photo).parents))


def _named(origin: Record, names: Sequence[str]) -> str:
    """What captions come from, with these fields."""
    details = [f"{name} {origin.get(name)!s:.12}" for name in names if name != "language"]
    noted = f" ({', '.join(details)})" if details else ""
    return f"the model {origin['model']} in the language {origin['language']}{noted}"


def _parsed(line: bytes) -> Record | None:
    """The record in a line; None of another line."""
    with suppress(ValueError, RecursionError):
        record: Record = json.loads(line)
        _SAVED.validate_python(record, strict=True)
        return record
    return None


def _opened(path: str | Path, mode: str) -> IO[str]:
    return open(path, mode, encoding="utf-8", errors="backslashreplace")
