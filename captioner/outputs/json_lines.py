"""Records as JSON lines, from which a run resumes."""

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import IO

from captioner import files
from captioner.errors import UserError, counted
from captioner.outputs.library import move_record, moved_photos, remove_own_sidecar
from captioner.outputs.options import PLACES, OutputOptions
from captioner.outputs.records import SAVED, Record, file_state, is_by_person, is_unchanged
from captioner.text.languages import ENGLISH
from captioner.vision.digest import photo_digest
from captioner.vision.images import ImageSource, Report
from captioner.vision.shards import source_status

NameOf = Callable[[Record], str]
Revise = Callable[[Record], bool]
Records = Iterator[Record]

_LONGEST_LINE = 2**26  # Bytes; a file of zeros would fill the memory.
_BEGINNING = b'{"image": '  # Of a line.


class JsonLines:
    """A file with a record a line, or standard output for `-`; a run resumes from the file.

    report: takes sentences about the records and lines that are found there.
    is_resumed: whether there are lines of an earlier run to keep.
    """

    def __init__(self, path: str, options: OutputOptions, report: Report) -> None:
        self._path = path
        self._options = options
        self._report = report
        self.is_resumed = options.resumes and os.path.exists(path)
        self._mode = "a" if self.is_resumed else "w"

    def write(self, record: Record) -> None:
        """Append a record."""
        self._append(files.json_text(record, indent=None))

    def resume(self, photos: Mapping[str, ImageSource], origin: Record) -> Records:
        """The record of each photo, but for failures; those by people are marked.

        Those of photos that are gone follow new photos of the same digest, or --prune drops them.
        Those of photos of which only the metadata changed get the state of their files.
        Reports photos that are gone, and lines without a record, which are moved to another file.
        All records stay in the file until new ones replace them: a killed run loses none. A missing
        file is made: a run that is killed before its first record can be resumed.
        """
        if not self.is_resumed:
            if not os.path.exists(self._path):
                self._append("")
            return
        name_of = self._names(photos, origin)
        records = (record for _, _, record in self._lines() if record)
        digests = {name_of(record): record.get("photo_digest", "") for record in records}
        absent = {name: digests[name] for name in digests if self._is_gone(name, photos)}
        is_dry = self._options.dry_run
        moved = moved_photos(absent, [] if is_dry else sorted(photos.keys() - digests))
        stale = absent if self._options.prune and not is_dry else {}
        changes = Counter[str]()

        def revise(record: Record) -> bool:
            if new_name := moved.get(record["image"]):
                changes["moved record"] += 1
                move_record(record, new_name)
            name = record["image"]
            is_changed = name in photos and not is_unchanged(photos[name], record)
            if is_changed and photo_digest(name) == record.get("photo_digest"):
                record |= file_state(source_status(photos[name]))
            is_stale = name in stale and not is_by_person(record)
            if is_stale:
                changes.update({"pruned record": 1, "pruned sidecar": remove_own_sidecar(record)})
            return not is_stale

        gone: dict[str, int] = {}
        for record in self._rewrite(name_of, revise):
            photo = record["image"]
            if "error" in record and "by" not in record:
                continue
            if photo in absent:
                gone[photo] = sum(map(os.path.lexists, record.get("files", {}).values()))
            yield record
        for what, number in changes.items():
            self._report(f"{self._path}: {counted(number, what)}")
        if gone:
            count = counted(len(gone), "record")
            files_left = counted(sum(gone.values()), "file")
            self._report(
                f"{self._path} keeps {count} of photos that are gone, {min(gone)} the first; "
                f"beside them stays what was written: {files_left}"
            )

    def drop_replaced(self) -> None:
        """Keep the last record of each photo; also those of an earlier run."""
        if self.is_resumed:
            deque(self._rewrite(), maxlen=0)

    def _rewrite(self, name_of: NameOf = itemgetter("image"), revise: Revise = bool) -> Records:
        """Write the file anew: each photo's last record, which is yielded, or else a person's.

        name_of: gives the name that a record's photo gets, or refuses the record. revise: changes
            the record with that name; returns whether it stays.
        """
        last: dict[str, tuple[bool, int]] = {}
        number = 0
        for number, _, record in self._lines():
            if record:
                name, place = name_of(record), (is_by_person(record), number)
                last[name] = max(last.get(name, place), place)
        if number and not last:
            what = "holds no results of `captioner caption`; give another file"
            raise UserError(f"--jsonl {self._path} {what}")
        kept = {number for _, number in last.values()}
        with files.atomic_path(self._path) as temporary, _opened(temporary, "w") as file:
            for number, line, record in self._lines():
                if record is None:
                    other = f"{self._path}.left_out"
                    what = f"no record of `captioner caption`: it is moved to {other}"
                    self._report(f"line {number} of {self._path} is {what}")
                    with open(other, "ab") as left_out:
                        left_out.write(line.removesuffix(b"\n") + b"\n")
                elif number in kept:
                    record["image"] = name_of(record)
                    if not revise(record):
                        continue
                    if is_by_person(record) and record.get("by") != "person":
                        record["by"] = "person"
                        for option in PLACES:  # Which have the words before.
                            record.get("files", {}).pop(option, None)
                    file.write(files.json_text(record, indent=None))
                    yield record

    def _append(self, text: str) -> None:
        if self._path == "-":
            print(text, end="", flush=True)
            return
        problem = f"cannot write {self._path}"
        with files.refuse_os_errors(problem), _opened(self._path, self._mode) as file:
            file.write(text)
        self._mode = "a"

    def _check_origin(self, record: Record, origin: Record) -> None:
        options = self._options
        free = {"without": "", "begin": "", "calibration": None, "language": ENGLISH}
        was = {**free, **record.get("search", {}), **record}
        free["language"] = options.language or ENGLISH
        now = {**free, **options.search, **origin.get("search", {}), **origin}
        names = ["digest", "translator", *(free | options.search)]
        differing = [name for name in names if name in was and was[name] != now.get(name)]
        is_named_so = os.path.normpath(was["model"]) == os.path.normpath(now["model"])
        if (differing or ("digest" not in was and not is_named_so)) and not options.resume_any:
            raise UserError(
                f"--jsonl {self._path} has captions of {_named(was, differing)}; this run's are of "
                f"{_named(now, differing)}: give another file, or --resume-any"
            )

    def _names(self, photos: Mapping[str, ImageSource], origin: Record) -> NameOf:
        """Finds a record's photo also by another spelling, or from the table's folder.

        Refuses a caption of another origin.
        """
        by_path = {files.real_path(photo): photo for photo in photos}

        def name_of(record: Record) -> str:
            name: str = record["image"]
            if "error" not in record:
                self._check_origin(record, origin)
            if name in photos:
                return name
            if _exists(name):
                return by_path.get(files.real_path(name), name)
            return by_path.get(files.real_path(self._from_table(name)), name)

        return name_of

    def _is_gone(self, name: str, photos: Mapping[str, ImageSource]) -> bool:
        return name not in photos and not any(map(_exists, (name, self._from_table(name))))

    def _from_table(self, path: str) -> str:
        """A path as from the folder of the table."""
        return os.path.join(os.path.dirname(self._path), path)

    def _lines(self) -> Iterator[tuple[int, bytes, Record | None]]:
        """Number, content and record of the lines, but for an unfinished one of a killed run."""
        with files.opened_file(self._path, "--jsonl") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                if len(line) == _LONGEST_LINE:
                    raise UserError(f"--jsonl {self._path} has an endless line; give another file")
                record = _parsed(line)
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
    details = [f"{name} {origin.get(name) or 'none'!s:.40}" for name in names if name != "language"]
    noted = f" ({', '.join(details)})" if details else ""
    return f"the model {origin['model']} in the language {origin['language']}{noted}"


def _parsed(line: bytes) -> Record | None:
    """The record in a line; None of another line."""
    with suppress(ValueError, RecursionError):
        record: Record = json.loads(line)
        SAVED.validate_python(record, strict=True)
        return record
    return None


def _opened(path: str | Path, mode: str) -> IO[str]:
    return open(path, mode, encoding="utf-8", errors="backslashreplace")
