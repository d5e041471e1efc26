"""Writes the captions of tables into and beside photos, and takes them out again; no model."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from itertools import chain, product, takewhile
from pathlib import Path

from pydantic import ValidationError

from captioner import files
from captioner.data.example import Problems
from captioner.data.sidecars import Spellings, photo_descriptions, read_sidecar, sidecars, spellings
from captioner.data.table import BY_CAPTIONER, TableRow, table_rows, with_suffix
from captioner.data.xmp import Description, Merged, is_marked
from captioner.errors import UserError
from captioner.outcomes import in_background
from captioner.outputs.descriptions import LEFT_OUT, SHARED, Descriptions, copies
from captioner.outputs.embedding import TEMPORARY, Embedder, mend_torn
from captioner.outputs.options import OutputOptions
from captioner.outputs.records import SAVED, Record, is_by_person
from captioner.schema import error_sentence
from captioner.text.languages import ENGLISH, is_english, language_tag
from captioner.vision.images import Report

_WRITERS = 2  # Threads; more of them wait for each other.
_UNDO = Description("", (), undo=True)
_KINDS = {".xmp": "sidecars", ".txt": "texts"}
_TABLES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


def write_captions(
    table: str, options: OutputOptions, images: str | None = None, report: Report = print
) -> Counter[str]:
    """Describe photos by the captions of a table, as options say; returns the count by outcome.

    table: any that the package reads or writes. A photo's last row counts, or its last by a person:
        one that is marked so, or changed, or of a table that captioner did not write.
    options: `language` is that of people's rows which name none.
    images: the photos' folder; by default the working folder, or else the table's.
    """
    records, problems = _records(table, images, options.language, report)
    mend_torn(records, report)
    counts = Counter({"not written": problems})
    photos = {photo: photo for photo in records}
    workers = 0 if options.embed else _WRITERS  # Exiftool writes one after the other.
    with closing(Descriptions(options, photos, report)) as descriptions:
        for written in in_background(descriptions.write_record, records.values(), workers):
            for problem in {*written.problems} - {SHARED}:
                report(problem)
            outcome = "described" if written.changes else "described already"
            outcome = "kept a person's words" if written.kept else outcome
            outcome = "left out" if written is LEFT_OUT else outcome
            counts["not written" if written.problems else outcome] += 1
    return counts


def _records(
    table: str, images: str | None, language: str | None, report: Report
) -> tuple[dict[str, Record], int]:
    """The record of each photo of a table, as `write_captions` chooses it; counts problems."""
    problems = Problems("skip", f"table {table}")
    folders = [Path(images)] if images else [Path(), Path(table).parent]
    records: dict[str, Record] = {}
    names = cache(files.folder_names)
    for row in table_rows(Path(table), problems):
        named = (with_suffix(folder / row.image, names) for folder in folders)
        paths = (files.existing_path(path, names) for path in named)
        photo = str(next(filter(os.path.isfile, paths), ""))
        if str(row.cells.get("rank") or 1) != "1":  # Another of several captions.
            continue
        record = _record(row, language, problems)
        if not photo:
            problems.add("missing image: see --images", f"{row.image}, {row.record}")
        elif record and (is_by_person(record) or not is_by_person(records.get(photo, {}))):
            records[photo] = record | {"image": photo}
    for sentence in problems.sentences:
        report(sentence)
    return records, len(problems)


def _record(row: TableRow, language: str | None, problems: Problems) -> Record:
    """The record of a row: a person's if captioner did not write it; empty with a problem."""
    cells = {name: value for name, value in row.cells.items() if value not in ("", None)}
    record: Record = {"by": "person"}
    try:
        tag = language_tag(cells.get("language", language or ENGLISH), "language")
        if cells.keys() >= BY_CAPTIONER:
            words = cells.get("words", row.captions[0])
            if isinstance(words, str):  # As all is in CSV.
                keywords = [*filter(None, cells.get("keywords", "").split(", "))]
                cells |= {"words": words.split(), "keywords": keywords, "word_confidence": None}
            record = {**SAVED.validate_python(cells)}
    except UserError as error:
        problems.add("row of another type", f"{row.record}: {error}")
        return {}
    except ValidationError as error:
        first = error.errors()[0]
        problems.add("row of another type", f"{row.record}: {error_sentence(first, first['loc'])}")
        return {}
    record["caption"] = row.captions[0]
    if is_by_person(record):
        record["language"] = None if is_english(tag) else tag
    return record


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
    tables = {name for name in photos if Path(name).suffix.lower() in _TABLES}
    read = [_records(table, images, None, report) for table in sorted(tables)]
    records = dict(chain.from_iterable(of_table.items() for of_table, _ in read))
    photos = [name for name in dict.fromkeys([*photos, *records]) if name not in tables]
    names, listed = cache(spellings), cache(files.folder_names)
    counts = Counter(dict.fromkeys(_KINDS.values(), 0))
    counts["not changed"] = sum(problems for _, problems in read)
    mend_torn(photos, report)
    if not is_dry:
        endings = (TEMPORARY, *_KINDS)
        written = (Path(name).with_suffix(end) for name, end in product(photos, endings))
        files.remove_leftovers(written)
    with closing(Embedder()) as embedder:
        for photo in map(Path, photos):
            text = files.existing_path(photo.with_suffix(".txt"), listed)
            # The text before the XMP that says whose it is, which a kill may leave there.
            places = dict.fromkeys([text, *chain(*sidecars(photo, names)), photo])
            if not any(map(os.path.lexists, places)):
                report(f"{photo} does not exist")
                counts["not changed"] += 1
            for path in filter(os.path.isfile, places):
                try:
                    if path == text:
                        record = records.get(str(photo), {})
                        done = _restore(text, photo, names, record, is_dry)
                        counts["texts left that may be a person's"] += not done.replaced
                    elif path.suffix.lower() == ".xmp":
                        done = _clear(path, is_dry)
                    else:
                        done = embedder.embed(photo, _UNDO, is_dry)
                except UserError as error:
                    report(str(error))
                    counts["not changed"] += 1
                    continue
                words = [*done.replaced, *done.keywords]
                counts[_KINDS.get(path.suffix.lower(), "photos")] += bool(words)
                if is_dry and words:
                    report(f"{path} would lose {', '.join(map(repr, words))}")
    return counts


def _clear(sidecar: Path, is_dry: bool) -> Merged:
    """Take captioner's words out of a sidecar, and remove it if it is left empty."""
    if not is_marked(files.read_bytes(sidecar)):
        return Merged()
    packet = read_sidecar(sidecar)
    done = packet.merge(_UNDO)
    if not is_dry and packet.is_empty:
        sidecar.unlink()
    elif not is_dry:
        files.write_bytes(sidecar, packet.as_file())
    return done


def _restore(text: Path, photo: Path, names: Spellings, record: Record, is_dry: bool) -> Merged:
    """Put back the last text that a caption replaced, or remove a caption that replaced none.

    record: of a table; captioner's XMP may have the caption, too. Words of a person that replaced
    none may have been the text before: they stay.
    """
    content = files.read_bytes(text).decode(errors="replace").strip()
    last = [*takewhile(os.path.lexists, copies(text))][-1:]
    own_words = {record.get("caption")} if last or not is_by_person(record) else set()
    with suppress(UserError):
        described = photo_descriptions(photo, names, by_person=bool(last))
        own_words.update(words for _, words, is_own in described if is_own)
    if content not in own_words:
        return Merged()
    if not is_dry and last:
        files.replace(last[0], text)
    elif not is_dry:
        text.unlink()
    return Merged(replaced=[content])
