"""Tables of photos and captions: CSV, TSV, JSON, JSONL, Parquet, tars, a folder."""

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from captioner.data.example import SPLIT_OF, Collector, Problems, SourcePhoto, Splits
from captioner.data.lines import lines_with_errors
from captioner.errors import UserError, counted
from captioner.files import (
    Json,
    JsonObject,
    existing_path,
    opened_file,
    parse_json,
    read_text,
)
from captioner.library import Description, Library
from captioner.tables import cell_text
from captioner.vision.images import PHOTO_SUFFIXES, is_leftover, local_path, photo_files
from captioner.vision.parquet import PATH_COLUMNS
from captioner.vision.shards import SHARD_SUFFIXES, ShardMember, read_shards

KNOWN = (  # Captions that are recognised by their content.
    "a folder of photos, shards (.tar, .parquet), CSV or TSV with a header, JSON lines, JSON with "
    "a list of rows or with captions by photo, JSON of COCO or Karpathy, or a token file of Flickr"
)

_TEXTS = (".txt", ".caption")  # Beside photo.jpg: photo.txt, photo.jpg.txt and so on.

# The tables in a folder of photos, as the ImageFolder of Hugging Face's datasets has them.
_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_KINDS = {"sidecar": "with an XMP sidecar", "photo": "described inside"}
BY_CAPTIONER = {"log_probability", "model"}
"""Columns of captioner's own captions."""

_NUMBER = re.compile(r"[-+]?[\d.]+(?:e[-+]?\d+)?%?", re.IGNORECASE)

# The names of each column, in any case; the first that a table has is taken.
_COLUMNS = {
    "image": (*PATH_COLUMNS, "image_id", "url", "image_url"),
    "caption": ("caption", "text", "comment", "description", "captions"),
    "split": ("split",),
}


class TableRow(NamedTuple):
    """A photo of a table, by its path there, and its captions."""

    record: str  # Its name, for messages.
    image: str
    captions: list[str]
    split: str | None = None
    photo: ShardMember | None = None  # In a shard, named `image`.
    cells: Mapping[str, Json] = {}  # All its columns.

    @property
    def is_own(self) -> bool:
        """Whether captioner wrote the captions, and nobody changed them."""
        return self.cells.keys() >= BY_CAPTIONER and self.cells.get("by") != "person"


_Records = Iterator[tuple[str, object]]  # Each with its name, for messages.
_Rows = dict[str, tuple[str, list[TableRow]]]  # By photo, each with where they stand.


def read_table(annotations: Path, images: Path, splits: Splits, collector: Collector) -> None:
    """Read a table, a folder (see `_of_folder`) or a pattern of shards (see `read_shards`).

    annotations: `text_records` says which files. A caption may be a list of them. Photos may lie in
        one folder below `images`, and lack their suffix.
    """
    problems = collector.problems
    rows, kind = (_of_folder, "folder") if os.path.isdir(annotations) else (table_rows, "table")
    problems.source = f"{kind} {annotations}"
    folder: Path | None = None

    @cache  # A photo may have many rows.
    def found(name: str) -> Path:
        return with_suffix((folder or images) / name)

    for row in rows(annotations, problems):
        if is_leftover(row.image):  # Such as @eaDir.
            continue
        if folder is None and not row.photo:
            folder = _folder_of(images, row.image)
        path = row.photo or found(row.image)
        record = f"image {row.image} ({row.record})"
        if collector.add(SourcePhoto(row.image, path, record, row.split)):
            for caption in row.captions:
                collector.add_caption(row.image, caption, row.record)


def _folder_of(images: Path, name: str) -> Path:
    """`images`, or the only folder in it with the photo, as Kaggle's `Images` beside a table."""
    matches: list[Path] = []
    if not os.path.exists(with_suffix(images / name)):
        with suppress(OSError, ValueError):  # A name that no folder can have.
            folders = [images / entry for entry in os.listdir(images) if not is_leftover(entry)]
            matches = [each for each in folders if os.path.exists(with_suffix(each / name))]
    return matches[0] if len(matches) == 1 else images


def with_suffix(path: Path) -> Path:
    """The photo that a path names, see `existing_path`; also without suffix, as kohya's have it."""
    path = existing_path(path)
    if path.suffix.lower() in PHOTO_SUFFIXES or os.path.lexists(path):
        return path
    named = (path.with_name(path.name + suffix) for suffix in sorted(PHOTO_SUFFIXES))
    return next(filter(os.path.isfile, map(existing_path, named)), path)


def _of_folder(folder: Path, problems: Problems) -> list[TableRow]:
    """The lines of the text beside each photo (see `_TEXTS`), in the folder or below it.

    A photo without a text has its rows of a table of `_METADATA`, in its folder or above, or else
    a description in or beside it; what captioner wrote counts if `problems.by_captioner` says so.
    Folders named by splits are these splits if all photos with captions lie in them.
    """
    photos = photo_files([folder], note=problems.notes.append, taken=PHOTO_SUFFIXES)
    found = _rows_of_tables(photos, folder, problems)
    counts: Counter[str] = Counter()
    with Library() as library:
        for photo in photos:
            image = photo.relative_to(folder).as_posix()
            texts = _texts_beside(photo)
            if text := next(filter(texts.get, texts), None):
                found[image] = "with a text beside them", [TableRow(f"{text}", image, texts[text])]
            elif image not in found:
                for each in _descriptions(photo, library, problems)[:1]:
                    found[image] = _KINDS[each.place], [TableRow(f"{photo}", image, [each.text])]
            without = "with a text of numbers alone" if texts else "without"
            counts[found.get(image, (without, []))[0]] += 1
    listed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    note = f"{problems.source}: {counted(counts.total(), 'photo')}, {listed}"
    if problems.left_out:
        note += f"; captions by captioner left out: {problems.left_out:,}"
    problems.notes.append(note)
    if not found and not problems:
        places = "photo.txt or photo.caption beside photo.jpg", *_METADATA, "XMP sidecars"
        advice = f"captions are in {', '.join(places)} or the photos"
        raise UserError(f"{'; '.join(problems.notes)}; {advice}")
    rows = [row for _, rows in found.values() for row in rows]
    tops = {row.image.partition("/")[0] for row in rows}
    if len(tops) > 1 and {top.lower() for top in tops} <= SPLIT_OF.keys():
        rows = [row._replace(split=row.split or row.image.partition("/")[0]) for row in rows]
    return rows


def _rows_of_tables(photos: Sequence[Path], folder: Path, problems: Problems) -> _Rows:
    """The rows of tables by photo, with the table's name.

    The table is the first of `_METADATA` in each folder between a folder and its photos.
    """
    found: _Rows = {}
    above = {parent for photo in photos for parent in photo.parents}
    for place in sorted(above - {*folder.parents}):
        tables = [place / name for name in _METADATA if os.path.isfile(place / name)]
        for table in tables[:1]:
            for row in table_rows(table, problems):
                if row.is_own and not problems.by_captioner:
                    problems.left_out += 1
                    continue
                path = existing_path(place / row.image)
                image = Path(os.path.relpath(path, folder)).as_posix()
                _, rows = found.setdefault(image, (f"in {table.name}", []))
                rows.append(row._replace(image=image))
    return found


def _descriptions(photo: Path, library: Library, problems: Problems) -> list[Description]:
    """The descriptions in and beside a photo that count."""
    described: Sequence[Description] = ()
    try:
        described = library.said(str(photo))
    except UserError as error:
        problems.add("unreadable description", str(error))
    if problems.by_captioner:
        return [*described]
    by_people = [each for each in described if each.by != "captioner"]
    problems.left_out += bool(described) and not by_people
    return by_people


def _texts_beside(photo: Path) -> dict[Path, list[str]]:
    """The texts beside a photo that are not empty, each with its captions."""
    names = chain.from_iterable((photo.stem + suffix, photo.name + suffix) for suffix in _TEXTS)
    texts = {path: read_text(path) for path in map(photo.with_name, names) if os.path.isfile(path)}
    return {path: _captions_in(text) for path, text in texts.items() if text.strip()}


def _captions_in(text: str) -> list[str]:
    """The lines of a text beside a photo; none where all are labels, such as YOLO's."""
    lines = [line for _, line in numbered_lines(text)]
    return [] if all(map(_is_label, lines)) else lines


def _is_label(line: str) -> bool:
    """Whether a line has numbers alone, or four and more with one other word, as of boxes."""
    words = re.split(r"[\s,;]+", line.strip())
    numbers = len([*filter(_NUMBER.fullmatch, words)])
    return numbers >= len(words) - (numbers > 3)


def text_records(file: Path, problems: Problems, what: str = "table") -> _Records:
    """The name, for messages, and the cells by column of each row; None of one that has none.

    JSON with a list of rows, or with captions or rows by photo, as those of kohya's scripts; JSON
    lines, an object each; or a header and rows, separated by commas, semicolons, tabs or bars.
    """
    suffix = file.suffix.lower()
    text = "" if suffix == ".jsonl" else read_text(file, what)
    if suffix == ".jsonl" or _is_json_lines(text):
        yield from _of_json_lines(file, what)
    elif suffix == ".json" or text.lstrip().startswith(("[", "{")):
        yield from _of_json(parse_json(text, f"{what} {file}"), f"{what} {file}")
    else:
        yield from _of_csv(text, file, problems, what)


def _of_json_lines(file: Path, what: str) -> _Records:
    with opened_file(file, what) as content:  # Read line by line: it may have a million.
        for number, (line, fault) in enumerate(lines_with_errors(content), start=1):
            if fault:
                raise UserError(f"line {number} of {what} {file} cannot be read: {fault}")
            if line.strip():
                yield f"line {number}", parsed(line)


def _is_json_lines(text: str) -> bool:
    """Whether each line is an object: the first is one, and not the whole of another document."""
    first, _, rest = text.strip().partition("\n")
    record = parsed(first) if first.startswith("{") else None
    return isinstance(record, dict) and (bool(rest) or len(_columns(tuple(record))) > 1)


def _of_json(document: Json, name: str) -> _Records:
    """The rows of a list; or the caption, captions or row of each photo, by its name."""
    if isinstance(document, list):
        yield from ((f"record {number}", record) for number, record in enumerate(document))
        return
    by_photo = document if isinstance(document, dict) else {}
    captions = {*_COLUMNS["caption"], "tags"}
    are_rows = all(isinstance(row, dict) and captions & row.keys() for row in by_photo.values())
    are_photos = any(Path(name).suffix.lower() in PHOTO_SUFFIXES for name in by_photo)
    if not (by_photo and are_rows) and not are_photos:
        raise UserError(f"{name} is not a list of rows, and not captions by photo")
    for photo, value in by_photo.items():
        row = value if isinstance(value, dict) else {"caption": value}
        tags = {"caption": row["tags"]} if "tags" in row else {}  # As kohya's have it.
        yield f"photo {photo!r}", {**tags, **row, "image": photo}


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not empty; U+2028 and the like, at which splitlines splits, end none."""
    lines = enumerate(text.split("\n"), start=1)
    return [(number, line) for number, line in lines if line.strip()]


def parsed(content: str | bytes) -> object:
    """The value of a JSON text; None of another text, and where a key is given twice."""
    with suppress(UserError):
        return parse_json(content, "")
    return None


def is_failed(record: Mapping[str, object]) -> bool:
    """Whether captioner wrote a record of a photo that it could not caption."""
    return "model" in record and bool(record.get("error")) and not record.get("caption")


def table_rows(file: Path, problems: Problems) -> Iterator[TableRow]:
    """The rows of a table."""
    failed: list[str] = []
    records = _of_shards if file.suffix.lower() in SHARD_SUFFIXES else text_records
    for where, record in records(file, problems):
        if not isinstance(record, dict):
            problems.add("row without a valid JSON object", where)
        elif is_failed(record):
            failed.append(where)
        elif row := _row(where, record, problems):
            yield row
    if failed:
        photos = f"{counted(len(failed), 'photo')} that captioner could not caption"
        problems.notes.append(f"{problems.source}: left out {photos} ({failed[0]} for one)")


def _row(where: str, record: JsonObject, problems: Problems) -> TableRow | None:
    """A row of a record; None, and a problem, if a column has no text."""
    columns = _columns(tuple(record))
    values: list[Json] = [record.get(columns.get(column, column)) for column in _COLUMNS]
    image, caption, split = values
    captions = caption if isinstance(caption, list) else [caption]
    photo = image if isinstance(image, ShardMember) else None
    are_valid = {
        "image": photo or (isinstance(image, str) and image.strip()),
        "caption": captions and all(isinstance(text, str) for text in captions),
        "split": split is None or isinstance(split, str),
    }
    for column, is_valid in are_valid.items():
        if not is_valid:
            name = columns.get(column, column).strip()
            problems.add(f'row without text in its "{name}"', where)
            return None
    split = (split or "").strip() or None
    if photo:
        return TableRow(where, photo.image_id, captions, split, photo)
    path = local_path(image.strip())
    if "://" in path:
        advice = "photos are not downloaded: download them, and give their paths"
        raise UserError(f"{problems.source} names photos by address, such as {path}; {advice}")
    return TableRow(where, os.path.normpath(path.replace("\\", "/")), captions, split, None, record)


@cache
def _columns(names: tuple[str, ...]) -> dict[str, str]:
    """The table's own names of the columns that it has."""
    header = {name.strip().lower(): name for name in names}
    pairs = ((column, name) for column, known in _COLUMNS.items() for name in reversed(known))
    return {column: header[name] for column, name in pairs if name in header}


def _of_csv(text: str, file: Path, problems: Problems, what: str) -> _Records:
    first_line = text.partition("\n")[0].replace('"', "")
    separator = max(",;\t|", key=lambda sign: len(_columns(tuple(first_line.split(sign)))))
    csv_file = io.StringIO(text, newline="")
    table = csv.DictReader(csv_file, strict=True, delimiter=separator)
    if separator == "|":  # Flickr30k's has quotation marks in its captions.
        table = csv.DictReader(csv_file, delimiter=separator, quoting=csv.QUOTE_NONE)
    try:
        header = [name.strip() for name in table.fieldnames or ()]
        columns = _columns(tuple(table.fieldnames or ()))
        for column in ("image", "caption"):
            if column not in columns:
                fault = f'no column "{column}" ({", ".join(_COLUMNS[column])}) in its first line'
                raise UserError(f"{what} {file} has {fault}")
        for name in columns.values():
            if [each.lower() for each in header].count(name.strip().lower()) > 1:
                raise UserError(f'{what} {file} has two columns "{name.strip()}"; rename one')
        for row in table:
            cells = list(row.values())
            if None in row or None in cells:
                fault = f"row without as many cells as the header, by {separator!r} without quotes"
                problems.add(fault, f"line {table.line_num}")
            elif any(map(str.strip, cells)):  # Spreadsheets write empty rows below a table.
                yield f"line {table.line_num}", {name: cell_text(row[name]) for name in row}
    except csv.Error as error:
        where = f"line {table.reader.line_num}"
        raise UserError(f"{what} {file} is not valid CSV ({where}: {error})") from None


def _of_shards(pattern: Path, problems: Problems) -> _Records:
    """A tar has a caption a line of the text beside a photo, or those in JSON."""
    for name, record in read_shards(pattern, partial(problems.add, "unreadable shard")):
        text, described = record.pop(".txt", None), record.pop(".json", None)
        described = {} if described is None else parsed(described.read())
        if not isinstance(described, dict):
            yield f"the .json of {name}", None
            continue
        if text is not None:  # Bytes that are not UTF-8 are refused as half characters.
            captions = _captions_in(text.read().decode("utf-8-sig", "surrogateescape"))
            if captions:
                described["caption"] = captions
        yield name, described | record
