"""Writes the captions of tables into and beside photos, and takes them out again; no model."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache, cached_property
from pathlib import Path

from captioner import files
from captioner.data.example import Problems
from captioner.data.table import BY_CAPTIONER, TableRow, table_rows, with_suffix
from captioner.errors import UserError, counted
from captioner.library import SHARED, Library
from captioner.outcomes import in_background
from captioner.outputs.descriptions import Descriptions, words_of
from captioner.outputs.options import OutputOptions
from captioner.outputs.record import PERSON, PhotoRecord, file_state, record_of
from captioner.outputs.sink import Run
from captioner.text.languages import ENGLISH, is_english, language_tag
from captioner.vision.digest import photo_digest
from captioner.vision.images import Report, ignore, photo_files
from captioner.vision.shards import source_status

_WRITERS = 2  # Threads.
_KINDS = {"xmp": "sidecars", "text": "texts", "embed": "photos"}
_FOLLOWING = "`captioner caption --resume` with the table lets their sidecars and texts follow"
_TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


def write_captions(
    table: str,
    options: OutputOptions,
    images: str | None = None,
    report: Report = print,
    language: str = ENGLISH,
) -> Counter[str]:
    """Describe photos by the captions of a table, as options say; returns the count by outcome.

    table: any that the package reads or writes. A photo's last row counts, or its last by a person:
        one that is marked so, or changed, or of a table that captioner did not write.
    images: the photos' folder; by default the working folder, or else the table's.
    language: of people's rows which name none.
    """
    rows = _Rows(table, images, language, report, options.edited)
    for sentence in Library(dry_run=options.dry_run).follow(rows.moved):
        report(sentence)
    if rows.traded:
        count = counted(len(rows.traded), "photo")
        report(f"{count} took the name of another, {rows.traded[0]} the first: {_FOLLOWING}")
    counts = Counter({"not written": rows.problems})
    photos = {photo: photo for photo in rows.photos.values()}
    with closing(Descriptions("", Run(options, photos, report))) as descriptions:

        def describe(record: PhotoRecord) -> PhotoRecord:
            if record.is_sure(options.min_confidence):
                descriptions.add(record)
            return record

        # Flushing files takes the time; exiftool writes one after the other.
        for record in in_background(describe, rows.records(), 0 if options.embed else _WRITERS):
            outcome = "left out"
            if written := record.described:
                outcome = "described" if written.changes else "described already"
                outcome = "kept a person's words" if written.kept else outcome
            if record.error not in ("", SHARED):
                report(record.error)
            counts["not written" if record.error else outcome] += 1
    return counts


def unwrite_captions(
    photos: Sequence[str], is_dry: bool = False, report: Report = print, images: str | None = None
) -> Counter[str]:
    """Take out of photos and sidecars what captioner wrote and nobody changed since.

    The words of people that it had replaced come back, in texts too. Returns the count of files by
    kind. is_dry: say what would be taken out, and do not.

    photos: also tables of captions, as `write_captions` takes them, which stand for their photos. A
        text without a copy goes if it is a model's caption in such a table, or in captioner's XMP.
    images: the photos' folder, of tables.
    """
    counts = Counter(dict.fromkeys(_KINDS.values(), 0))
    named = dict.fromkeys(photos)
    with Library(dry_run=is_dry, photos=photos) as library:

        def undo(photo: str, record: PhotoRecord | None = None) -> None:
            undone = library.undo(photo, words_of(record, OutputOptions()) if record else None)
            for sentence in (*undone.problems, *undone.notes):
                report(sentence)
            counts.update(_KINDS[option] for option in undone.words)
            counts["texts left that may be a person's"] += bool(undone.kept)
            counts["not changed"] += bool(undone.problems)

        for table in [name for name in named if Path(name).suffix.lower() in _TABLES]:
            rows = _Rows(table, images, ENGLISH, report, is_edited=True)
            counts["not changed"] += rows.problems
            for record in rows.records():
                named.pop(record.image, None)
                undo(record.image, record)
            del named[table]
        for photo in named:
            undo(photo)
    return counts


class _Rows:
    """The rows of a table that count, each of a photo.

    photos: names by the number of the row. problems: how many rows were left out.
    moved: new names of photos by their old ones, which are free. traded: photos with other names
        than in the table, which other photos have or had.
    """

    def __init__(
        self, table: str, images: str | None, language: str, report: Report, is_edited: bool
    ) -> None:
        self._table = Path(table)
        self._language = language
        self._folders = [Path(images)] if images else [Path(), self._table.parent]
        self._is_edited = is_edited
        self._names = cache(files.folder_names)
        problems = Problems("skip", f"table {table}")
        chosen: dict[str, tuple[bool, bool, int]] = {}
        known, renamed = set[str](), dict[str, str]()
        for number, row, record in self._read(problems):
            photo, named = self._find(record)
            bases = [each for each in self._folders if _is_in(photo, each)][-1:]
            olds = [named] if named else [str(each / record.image) for each in bases]
            known.update(olds)
            renamed |= dict.fromkeys(olds, photo) if photo not in ("", named) else {}
            rank = record.is_by_person, photo == named, number
            if photo:
                chosen[photo] = max(chosen.get(photo, rank), rank)
            elif named:
                about = f"{named} for {record.caption!r}, {row.record}"
                problems.add("caption of an image that is another one now: see --edited", about)
            else:
                problems.add("missing image: see --images", f"{row.image}, {row.record}")
        self.photos = {number: photo for photo, (*_, number) in chosen.items()}
        free = {old for old, new in renamed.items() if not (os.path.exists(old) or new in known)}
        self.moved = {old: renamed[old] for old in free}
        self.traded = sorted({*renamed.values()} - {*self.moved.values()})
        for sentence in problems.sentences:
            report(sentence)
        self.problems = len(problems)

    def records(self) -> Iterator[PhotoRecord]:
        """The records of the rows, with their photos."""
        for number, _, record in self._read(Problems()):
            if photo := self.photos.get(number):
                record.image = photo
                yield record

    def _read(self, problems: Problems) -> Iterator[tuple[int, TableRow, PhotoRecord]]:
        for number, row in enumerate(table_rows(self._table, problems)):
            if str(row.cells.get("rank") or 1) == "1":  # No other one of several captions.
                try:
                    yield number, row, _record(row, self._language)
                except UserError as error:
                    problems.add("row of another type", f"{row.record}: {error}")

    def _find(self, record: PhotoRecord) -> tuple[str, str]:
        """The photo of a record, and that of its name; "" where there is none."""
        typed = (with_suffix(each / record.image, self._names) for each in self._folders)
        paths = (files.existing_path(path, self._names) for path in typed)
        named, digest = str(next(filter(os.path.isfile, paths), "")), record.photo_digest
        is_as_before = file_state(source_status(named)) == record.state and not record.is_by_person
        now = photo_digest(named) if named and digest and not is_as_before else digest
        if named and now == digest:
            return named, named
        found = self._by_digest.get(digest, "")
        return found or (named if self._is_edited or not now else ""), named

    @cached_property
    def _by_digest(self) -> dict[str, str]:
        photos = map(str, photo_files(self._folders, ignore))
        return {photo_digest(photo): photo for photo in photos}


def _is_in(photo: str, folder: Path) -> bool:
    """Whether a photo is in a folder or below."""
    return os.path.join(files.real_path(photo), "").startswith(
        os.path.join(files.real_path(folder), "")
    )


def _record(row: TableRow, language: str) -> PhotoRecord:
    """The record of a row: a person's if captioner did not write it."""
    cells = {name: value for name, value in row.cells.items() if value not in ("", None)}
    if not cells.keys() >= BY_CAPTIONER:
        cells = {name: cells[name] for name in cells.keys() & {"language", "photo_digest"}}
        cells["by"] = PERSON
    words = cells.get("words", [])
    if isinstance(words, str):  # As all is in CSV.
        cells |= {"words": words.split(), "word_confidence": None}
    if isinstance(keywords := cells.get("keywords"), str):
        cells["keywords"] = [*filter(None, keywords.split(", "))]
    record = record_of({**cells, "image": row.image, "caption": row.captions[0]})
    if record.is_by_person:
        tag = language_tag(record.language or language, "language")
        record.language = None if is_english(tag) else tag
    return record
