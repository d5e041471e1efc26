"""Writes the captions of tables into and beside photos, and takes them out again; no model."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from captioner import files
from captioner.data.example import Problems
from captioner.data.table import BY_CAPTIONER, table_rows, with_suffix
from captioner.errors import UserError
from captioner.library import ENDINGS, Library
from captioner.outputs.descriptions import words_of
from captioner.outputs.json_lines import JsonLines, line_of
from captioner.outputs.known_photos import is_as_before, note_state
from captioner.outputs.options import OutputOptions
from captioner.outputs.outputs import opened_outputs
from captioner.outputs.record import PERSON, PhotoRecord, record_of
from captioner.outputs.resume import Resumed
from captioner.outputs.sink import Run
from captioner.text.languages import ENGLISH, is_english, language_tag
from captioner.vision.digest import photo_digest
from captioner.vision.images import Report, ignore, photo_files

_KINDS = {"xmp": "sidecars", "text": "texts", "embed": "photos"}
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
    problems, counts = Problems("skip", f"table {table}"), Counter({"not written": 0})
    language = language_tag(language, "--language")
    with opened_outputs(options, {}, report) as outputs:
        records = _records(Path(table), images, language, outputs.run, problems)
        for record in outputs.give(records):
            outcome = "left out"
            if written := record.described:
                outcome = "described" if written.words else "described already"
                outcome = "kept a person's words" if written.kept else outcome
            if record.error:
                report(record.error)
            counts["not written" if record.error else outcome] += 1
    counts["not written"] += len(problems)
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
    tables = [name for name in photos if Path(name).suffix.lower() in _TABLES]
    others = [name for name in photos if name not in tables]  # `photos/*` has files beside photos.
    named = dict.fromkeys([each for each in others if not each.lower().endswith(ENDINGS)] or others)
    options = OutputOptions(text=True, dry_run=is_dry, edited=True)
    with Library(dry_run=is_dry, photo_digest=photo_digest) as library:

        def undo(photo: str, record: PhotoRecord | None = None) -> None:
            undone = library.undo(photo, words_of(record, options) if record else None)
            for sentence in dict.fromkeys((*undone.problems, *undone.notes)):
                report(sentence)
            counts.update(_KINDS[option] for option in undone.words)
            counts["texts left that may be a person's"] += bool(undone.kept)
            counts["not changed"] += bool(undone.problems)

        for table in tables:
            run, problems = Run(options, {}, report), Problems("skip", f"table {table}")
            for record in _records(Path(table), images, ENGLISH, run, problems):
                named.pop(record.image, None)
                undo(record.image, record)
            counts["not changed"] += len(problems)
        for photo in named:
            undo(photo)
    return counts


def _records(
    table: Path, images: str | None, language: str, run: Run, problems: Problems
) -> Iterator[PhotoRecord]:
    """The records of a table that count, each with its photo in the run.

    An error says why another photo stands there. `problems` get those that are left out. What is
    beside renamed photos follows. The records pass through a file, not the memory.
    """
    folders = [images] if images else ["", str(table.parent)]
    with TemporaryDirectory() as folder:
        lines = JsonLines(os.path.join(folder, "records.jsonl"), run)
        if not _copy(_rows(table, language, problems), folders, run, lines.path):
            known = set(map(files.real_path, run.photos))
            found = map(str, photo_files(folders, ignore))
            others = {files.real_path(photo): photo for photo in found}
            run.photos.update({others[path]: others[path] for path in others if path not in known})
        resumed = Resumed(run, lines, (), None, *folders)
        for photo in run.photos.keys() - resumed.finished:
            del run.photos[photo]
        yield from resumed.replaced.values()
        for name in lines.places:
            record = resumed.read(name) if name in resumed.finished else None
            if record:
                record.saved = None
                yield record
            elif name not in resumed.replaced:
                problems.add("missing image: see --images", name.partition("\0")[0])
    for sentence in problems.sentences:
        run.report(sentence)


def _copy(records: Iterator[PhotoRecord], folders: Sequence[str], run: Run, to: str) -> bool:
    """Write records with their photos as JSON lines; returns whether all photos are as they say."""
    are_there, names = True, dict[str, str]()  # A photo may have two spellings.
    with open(to, "wb") as file:
        for record in records:
            paths = (str(with_suffix(Path(each, record.image))) for each in folders)
            if named := next(filter(os.path.isfile, paths), ""):
                named = names.setdefault(os.path.abspath(named), named)
                record.image = run.photos[named] = named
            if not record.photo_digest:
                note_state(record, named)
            are_there &= not record.photo_digest or is_as_before(record, named)
            file.write(line_of(record.to_dict()))
    return are_there


def _rows(table: Path, language: str, problems: Problems) -> Iterator[PhotoRecord]:
    """The records of the rows: a person's if captioner did not write them."""
    first = ""  # The photo of the last row of rank 1: others of it are its other captions.
    for row in table_rows(table, problems):
        cells = {name: value for name, value in row.cells.items() if value not in ("", None)}
        is_own = cells.keys() >= BY_CAPTIONER
        if str(cells.pop("rank", 1)) in ("1", "1.0"):
            first = row.image
        elif is_own or row.image == first:
            continue
        if not is_own:
            cells = {name: cells[name] for name in cells.keys() & {"language", "photo_digest"}}
            cells["by"] = PERSON
        words = cells.get("words", [])
        if isinstance(words, str):  # As all is in CSV.
            cells |= {"words": words.split(), "word_confidence": None}
        if isinstance(keywords := cells.get("keywords"), str):
            cells["keywords"] = [*filter(None, keywords.split(", "))]
        fields = {name: cells[name] for name in cells.keys() & PhotoRecord.model_fields.keys()}
        fields.pop("erased", None)  # JSON in a cell.
        if cells.get("sentence"):  # CSV and Parquet have no other option of a search.
            fields["search"] = {"sentence": True}
        fields |= {"image": row.image, "caption": row.captions[0], "error": ""}
        try:
            record = record_of({"model": "default", **fields})
            if record.is_by_person:
                tag = language_tag(record.language or language, "language")
                record.language = None if is_english(tag) else tag
        except UserError as error:
            problems.add("row of another type", f"{row.record}: {error}")
            continue
        yield record
