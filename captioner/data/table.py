"""A table of photos and captions: CSV, TSV, JSONL, JSON, Parquet, WebDataset's tars, a folder."""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from captioner.data.example import Collector, Problems
from captioner.data.photo_descriptions import photo_descriptions
from captioner.errors import UserError, counted
from captioner.files import read_json, read_text
from captioner.vision.images import find_images
from captioner.vision.shards import PATH_COLUMNS, SHARD_SUFFIXES, ShardMember, read_shards

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", *SHARD_SUFFIXES)

# The tables in a folder of photos, as the ImageFolder of Hugging Face's datasets has them.
_METADATA = ("metadata.jsonl", "metadata.csv")

_BY_CAPTIONER = {"log_probability", "model"}  # Columns of captioner's own captions.

# The names of each column, in any case; the first that a table has is taken.
_COLUMNS = {
    "image": PATH_COLUMNS,
    "caption": ("caption", "text", "comment", "description", "captions"),
    "split": ("split",),
}


class _Row(NamedTuple):
    record: str  # Its name, for messages.
    image: str
    captions: list[str]
    split: str | None = None
    photo: ShardMember | None = None  # In a shard, named `image`.


def read_table(
    annotations: Path, images: Path, splits: Sequence[str | None], collector: Collector
) -> None:
    """Read a table, a folder (see `_of_folder`) or a pattern of shards (see `read_shards`).

    annotations: a `.csv` or `.tsv` file with a header, separated by commas, semicolons or tabs; a
        `.jsonl` file with an object a line, or a `.json` file with a list of them. `_COLUMNS` has
        the names of the columns. A caption may be a list of them.

    `image_id` is the path in the table, with slashes for backslashes, or `ShardMember.image_id`.
    """
    problems = collector.problems
    kind = "shards" if annotations.suffix.lower() in SHARD_SUFFIXES else "table"
    kind, rows = ("folder", _of_folder) if annotations.is_dir() else (kind, _rows)
    problems.source = f"{kind} {annotations}"
    is_added: dict[tuple[str, str | None, ShardMember | None], bool] = {}
    for row in rows(annotations, problems):
        key = (row.image, row.split, row.photo)  # A name may be in two splits, and in two shards.
        if key not in is_added:
            record, path = f"image {row.image} ({row.record})", row.photo or images / row.image
            is_added[key] = collector.add_image(row.image, path, record, row.split)
        for caption in row.captions if is_added[key] else ():
            collector.add_caption(row.image, caption, row.record)


def _of_folder(folder: Path, problems: Problems) -> Iterator[_Row]:
    """The lines of the text `photo.txt` beside each photo, in the folder or below it.

    A photo without a text has its rows of `_METADATA` in the folder, or else one of its
    `photo_descriptions`; what captioner wrote counts if `problems.by_captioner` says so.
    """
    table = next((name for name in _METADATA if (folder / name).is_file()), "")
    takes_all, left_out = problems.by_captioner, 0
    rows_of = defaultdict(list)
    for row in _rows(folder / table, problems, skips_own=not takes_all) if table else ():
        if row.captions:
            rows_of[row.image].append(row)
        left_out += not row.captions
    counts: Counter[str] = Counter()
    for photo in find_images([folder]):
        image, text = photo.relative_to(folder).as_posix(), photo.with_suffix(".txt")
        lines = [line for _, line in numbered_lines(read_text(text))] if text.is_file() else []
        if lines:
            kind, rows_of[image] = "with a text beside them", [_Row(f"{text}", image, lines)]
        elif image in rows_of:
            kind = f"in {table}"
        else:
            kind, found = "without", []
            try:
                found = list(photo_descriptions(photo))
            except UserError as error:
                problems.add("unreadable description", str(error))
            usable = [each for each in found if takes_all or not each[2]]
            left_out += bool(found) and not usable
            if usable:
                kind, description, _ = usable[0]
                rows_of[image] = [_Row(f"{photo}", image, [description])]
        counts[kind] += 1
    listed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    own = f"; captions by captioner left out: {left_out:,}" if left_out else ""
    note = f"{problems.source}: {counted(counts.total(), 'photo')}, {listed}{own}"
    if not rows_of and not problems:
        named = f"photo.txt beside photo.jpg, {', '.join(_METADATA)}, XMP sidecars or the photos"
        raise UserError(f"{note}; captions are in {named}")
    problems.notes.append(note)
    return chain.from_iterable(rows_of.values())


def _records(file: Path, problems: Problems) -> Iterator[tuple[str, Any]]:
    """The name, for messages, and the cells by column of each row; None of one that has none."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"table {file} is none of {', '.join(SUFFIXES)}")
    if suffix in SHARD_SUFFIXES:
        yield from _of_shards(file, problems)
    elif suffix == ".json":
        document = read_json(file, "table")
        if not isinstance(document, list):
            raise UserError(f"table {file} is not a list of rows")
        yield from ((f"record {number}", record) for number, record in enumerate(document))
    elif suffix == ".jsonl":
        for line, content in numbered_lines(read_text(file, "table")):
            yield f"line {line}", _parsed(content)
    else:
        yield from _of_csv(read_text(file, "table"), file, problems)


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not empty; U+2028 and the like, at which splitlines splits, end none."""
    return [each for each in enumerate(text.split("\n"), start=1) if each[1].strip()]


def _parsed(content: str | bytes) -> Any:
    """The value of a JSON text; None of another text."""
    with suppress(ValueError, RecursionError):
        return json.loads(content)
    return None


def _rows(file: Path, problems: Problems, skips_own: bool = False) -> Iterator[_Row]:
    """The rows of a table. skips_own: those that captioner wrote are empty."""
    for where, record in _records(file, problems):
        if not isinstance(record, dict):
            problems.add("ill-formed line", f"{where} is not a JSON object")
            continue
        if skips_own and record.keys() >= _BY_CAPTIONER:
            yield _Row(where, "", [])
            continue
        columns = _columns(tuple(record))
        values: list[Any] = [record.get(columns.get(each, each)) for each in _COLUMNS]
        image, caption, split = values
        captions = caption if isinstance(caption, list) else [caption]
        photo = image if isinstance(image, ShardMember) else None
        are_valid = {
            "image": photo or (isinstance(image, str) and image.strip()),
            "caption": captions and all(isinstance(each, str) for each in captions),
            "split": split is None or isinstance(split, str),
        }
        if bad := [columns.get(each, each) for each, is_valid in are_valid.items() if not is_valid]:
            problems.add("ill-formed line", f'{where} has no text in its "{bad[0].strip()}"')
            continue
        name = photo.image_id if photo else os.path.normpath(image.strip().replace("\\", "/"))
        split = (split or "").strip() or None
        yield _Row(where, name, captions, split, photo)


@cache
def _columns(names: tuple[str, ...]) -> dict[str, str]:
    """The table's own names of the columns that it has."""
    own = {name.strip().lower(): name for name in names}
    return {
        column: next(own[name] for name in known if name in own)
        for column, known in _COLUMNS.items()
        if not own.keys().isdisjoint(known)
    }


def _of_csv(text: str, file: Path, problems: Problems) -> Iterator[tuple[str, Any]]:
    names = text.partition("\n")[0].replace('"', "")
    separator = max(",;\t", key=lambda each: len(_columns(tuple(names.split(each)))))
    table = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    try:
        columns = _columns(tuple(table.fieldnames or ()))
        lacking = [column for column in ("image", "caption") if column not in columns]
        if lacking:
            faults = (f'no column "{each}" ({", ".join(_COLUMNS[each])})' for each in lacking)
            raise UserError(f"table {file} has {' and '.join(faults)} in its first line")
        for row in table:
            cells = list(row.values())
            if None in row or None in cells:
                fault = f"has more or fewer cells than the header, by {separator!r} without quotes"
                problems.add("ill-formed line", f"line {table.line_num} {fault}")
            elif any(map(str.strip, cells)):  # Spreadsheets write empty rows below a table.
                yield f"line {table.line_num}", row
    except csv.Error as error:
        where = f"line {table.reader.line_num}"
        raise UserError(f"table {file} is not valid CSV ({where}: {error})") from None


def _of_shards(pattern: Path, problems: Problems) -> Iterator[tuple[str, Any]]:
    """A tar has a caption a line of the text beside a photo, or those in JSON."""
    for name, record in read_shards(pattern, partial(problems.add, "unreadable shard")):
        text, described = record.pop(".txt", None), record.pop(".json", None)
        described = {} if described is None else _parsed(described.read())
        if not isinstance(described, dict):
            yield f"the .json of {name}", None
            continue
        if text is not None:  # Bytes that are not UTF-8 are refused as half characters.
            lines = numbered_lines(text.read().decode("utf-8-sig", "surrogateescape"))
            described["caption"] = [line for _, line in lines]
        yield name, described | record
