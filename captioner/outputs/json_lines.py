"""The sink of JSON lines, from which a run resumes. No record stays in memory, but its place."""

import os
from collections.abc import Collection, Iterator
from typing import IO

from captioner import files
from captioner.errors import UserError
from captioner.files import JsonObject, json_text
from captioner.outputs.record import PLACES, PhotoRecord, record_in
from captioner.outputs.sink import Run, Sink

_LONGEST_LINE = 2**26  # Bytes; a file of zeros would fill the memory.
_BEGINNING = b'{"image": '  # Of a line.
_FOR_DATASETS = ("by", "language", "words", "keywords", "confidence", "log_probability", "model")


class JsonLines(Sink):
    """A line a record as it comes; of a resumed table, the records that differ from it.

    places: of a resumed table, where the record of each photo begins, and each line without one.
    is_stale: whether there are lines that others replace: `close` leaves them out.
    """

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        self.places: dict[str, int] = {}
        self.is_stale = False
        self.takes_unsure = run.options.resumes
        self._mode = "ab" if run.options.resumes else "wb"
        if run.options.resumes and not os.path.exists(path):
            files.write_bytes(path, b"")  # A run that is killed before its first record resumes.

    def lines(self) -> Iterator[tuple[int, PhotoRecord]]:
        """Places and records of the lines of a resumed table.

        Lines without a record are named and stay, but for an unfinished last one, of a killed run.
        A file without any record is refused.
        """
        place, others, line, has_record = 0, list[str](), b"\n", False
        with files.opened_file(self.path, "--jsonl") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                if len(line) == _LONGEST_LINE:
                    raise UserError(f"--jsonl {self.path} has an endless line; give another file")
                is_begun = _BEGINNING.startswith(line[: len(_BEGINNING)])
                if record := record_in(line):
                    has_record = True
                    yield place, record
                elif line.strip() and (line.endswith(b"\n") or not is_begun):
                    others.append(f"line {number} of {self.path}")
                    self.places[others[-1]] = place
                place += len(line)
        if place and not has_record:
            what = "holds no results of `captioner caption`; give another file"
            raise UserError(f"--jsonl {self.path} {what}")
        for other in others:
            self.run.report(f"{other} is no record of `captioner caption`: it is left alone")
        if not line.endswith(b"\n"):
            self._append(b"\n")
            self.is_stale |= not record_in(line)

    def read(self, photo: str) -> PhotoRecord | None:
        """The record of a photo in a resumed table, if there is one."""
        if photo not in self.places:
            return None
        with open(self.path, "rb") as file:
            return record_in(_line_at(file, self.places[photo]))

    def has(self, record: PhotoRecord) -> bool:
        """Whether a resumed table has all fields of a record."""
        return record.to_dict() == record.saved

    def drop(self, photo: str) -> None:
        """Leave out the record of a photo, if there is one."""
        self.is_stale |= self.places.pop(photo, None) is not None

    def add(self, record: PhotoRecord) -> None:
        """Append the line of a record, unless it is there."""
        fields = record.to_dict()
        if self.run.options.jsonl_for:
            fields = self._for_datasets(record) if record.caption else {}
        if self.path == "-" and fields:
            print(json_text(fields, indent=None), end="", flush=True)
        elif fields and fields != record.saved:
            self._append(line_of(fields), record.image)

    def _append(self, line: bytes, photo: str = "") -> None:
        problem = f"cannot write {self.path}"
        with files.refuse_os_errors(problem), open(self.path, self._mode) as file:
            file.write(line)
            if photo and self.run.options.resumes:  # Else it may be a pipe, without places.
                self.is_stale |= photo in self.places
                self.places[photo] = file.tell() - len(line)
        self._mode = "ab"

    def _for_datasets(self, record: PhotoRecord) -> JsonObject:
        """`file_name`, as from the table's folder, and `text`, as `datasets` reads them.

        The other fields say that captioner wrote the caption, for those who read it again.
        """
        name = os.path.relpath(record.image, os.path.dirname(self.path) or os.curdir)
        others = {field: getattr(record, field) for field in (*_FOR_DATASETS, "photo_digest")}
        others["sentence"] = record.search.get("sentence")
        return {"file_name": name.replace(os.sep, "/"), "text": record.caption, **others}

    def rewrite(self, renamed: Collection[str] = ()) -> None:
        """Write the table anew, without the lines that others replace.

        renamed: photos whose lines have the names before, and files beside these.
        """
        places = {}
        with (
            files.atomic_path(self.path) as temporary,
            temporary.open("wb") as new,
            open(self.path, "rb") as file,
        ):
            for photo, place in self.places.items():
                line = _line_at(file, place)
                if photo in renamed and (record := record_in(line)):
                    record.image = photo
                    record.files = {key: record.files[key] for key in record.files.keys() - PLACES}
                    line = line_of(record.to_dict())
                places[photo] = new.tell()
                new.write(line)
        self.places, self.is_stale = places, False

    def close(self) -> None:
        """Leave out the lines that others replace."""
        if self.is_stale:
            self.rewrite()


def line_of(fields: JsonObject) -> bytes:
    """A line of JSON, as of a record."""
    return json_text(fields, indent=None).encode(errors="backslashreplace")


def _line_at(file: IO[bytes], place: int) -> bytes:
    file.seek(place)
    return file.readline().removesuffix(b"\n") + b"\n"
