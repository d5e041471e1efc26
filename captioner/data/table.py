"""A table of photos and captions: CSV, TSV or JSONL, one row a caption."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from captioner.data.example import Collector, Example, ImageId, Problems
from captioner.errors import UserError
from captioner.files import read_text

SUFFIXES = (".csv", ".tsv", ".jsonl")

_COLUMNS = {
    "image": ("image", "filename", "file_name", "file", "path", "photo"),
    "caption": ("caption", "text", "comment", "description"),
    "split": ("split",),
}
"""The names of each column, in any case; the first that a table has is taken."""

_SEPARATORS = ",;\t"

TRAIN, VALIDATION = "train", "val"
"""The splits that are drawn from a table without splits."""

_SEED = 0


@dataclass(frozen=True)
class _Row:
    line: int
    image: str
    caption: str
    split: str | None


def read_table(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None,
    split: str | None,
    problems: Problems,
    check_files: bool = True,
) -> Iterator[Example]:
    """Read a table.

    annotations: a `.csv` or `.tsv` file with a header, separated by commas, semicolons or tabs, or
        a `.jsonl` file with an object a line. `_COLUMNS` has the names of the columns; others are
        ignored, and the split is optional. Duplicate rows are allowed.
    images: the folder of relative image paths; None: the folder of the table.
    split: None: every row. `train` and `val` of a table without splits are drawn by photo, as the
        note of `problems` says.

    `image_id` is the path in the table, with slashes for backslashes.
    """
    yield from read_splits(annotations, images, [split], problems, check_files)[0]


def read_splits(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None,
    splits: Sequence[str | None],
    problems: Problems,
    check_files: bool = True,
) -> list[list[Example]]:
    """Read several splits of a table as `read_table` does; one error has all their problems."""
    file = Path(annotations)
    folder = file.parent if images is None else Path(images)
    collector = Collector(problems, f"table {file}", check_files)
    if file.suffix.lower() not in SUFFIXES:
        raise UserError(f"table {file} is none of {', '.join(SUFFIXES)}")
    text = read_text(file, "table")
    if file.suffix.lower() == ".jsonl":
        rows = _jsonl_rows(text, problems)
    else:
        rows = _csv_rows(text, file, problems)
    if {TRAIN, VALIDATION} & set(splits) and not any(row.split for row in rows):
        rows, problems.note = _with_drawn_splits(rows, file)
    if splits != [None] and any(row.split for row in rows):
        for record in (f"line {row.line}" for row in rows if row.split is None):
            problems.add("row without a split", f"{record} has no split")
    is_refused = problems.on_problem == "refuse" and len(problems) > 0  # `examples` says why.
    for split in splits:
        if split is not None and not is_refused:
            _require_split(rows, split, file, bool(problems.note))
    split_of: dict[ImageId, str | None] = {}
    for row in rows:
        record = f"line {row.line}"
        image_record = f"image {row.image} ({record})"
        if not collector.is_in_split(row.image, row.split, image_record):
            continue
        if row.split in splits or None in splits:
            if row.image not in collector:
                collector.add_image(row.image, folder / row.image, image_record)
                split_of[row.image] = row.split
            collector.add_caption(row.image, row.caption, record)
    examples = list(collector.examples())
    return [
        [each for each in examples if split in (None, split_of[each.image_id])] for split in splits
    ]


def _with_drawn_splits(rows: list[_Row], file: Path) -> tuple[list[_Row], str]:
    """The rows with a tenth of the photos for validation, and a sentence that says so.

    At least 50 photos, but at most a quarter, and two in any case, are for validation. They are
    drawn by a hash of their path, so that most keep their split when others are added.
    """
    photos = sorted(
        {row.image for row in rows},
        key=lambda image: hashlib.sha256(f"{_SEED} {image}".encode("utf-8", "replace")).digest(),
    )
    count = max(len(photos) // 10, min(50, max(2, len(photos) // 4))) if len(photos) >= 4 else 0
    drawn = set(photos[:count])
    rows = [replace(row, split=VALIDATION if row.image in drawn else TRAIN) for row in rows]
    return rows, (
        f"table {file} has no splits: {count:,} of its {len(photos):,} photos, drawn with seed "
        f"{_SEED}, are the split {VALIDATION}, the others {TRAIN}"
    )


def _require_split(rows: list[_Row], split: str, file: Path, is_drawn: bool) -> None:
    present = sorted({row.split for row in rows if row.split is not None})
    if split not in present:
        if is_drawn and split == VALIDATION and present:
            raise UserError(f"table {file} has too few photos for validation: it takes 4 at least")
        lacking = 'no "split" column' if rows else "no rows"
        only = f", only {', '.join(present)}" if present else f": it has {lacking}"
        raise UserError(f"table {file} has no split {split!r}{only}")


def _csv_rows(text: str, file: Path, problems: Problems) -> list[_Row]:
    first_line = text.partition("\n")[0].replace('"', "")
    separator = max(_SEPARATORS, key=lambda each: len(_columns(first_line.split(each))))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    rows: list[_Row] = []
    try:
        header = next(reader, [])
        columns = _columns(header)
        names = [name.strip().lower() for name in header]
        faults = [
            f'has no column "{column}" ({", ".join(known)})'
            for column, known in _COLUMNS.items()
            if column not in columns and column != "split"
        ] + [
            f'has the column "{name}" twice'
            for name in columns.values()
            if names.count(name.strip().lower()) > 1
        ]
        if faults:
            raise UserError(f"table {file} {' and '.join(faults)} in its first line")
        line = reader.line_num + 1
        for cells in reader:
            if not any(map(str.strip, cells)):
                pass  # Spreadsheets write rows of separators below a table.
            elif len(cells) == len(header):
                _add_row(rows, dict(zip(header, cells, strict=True)), columns, line, problems)
            else:
                kind = "ill-formed line"
                if len(cells) > len(header):
                    kind = f"line with too many cells (put captions with {separator!r} in quotes)"
                sentence = f"line {line} has {len(cells)} cells, the header {len(header)}"
                problems.add(kind, sentence)
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"table {file} is not valid CSV (line {reader.line_num}: {error})"
        ) from None
    return rows


def _columns(names: Iterable[str]) -> dict[str, str]:
    """The table's own names of the columns that it has."""
    own = {name.strip().lower(): name for name in names}
    found = {
        column: next((own[name] for name in known if name in own), None)
        for column, known in _COLUMNS.items()
    }
    return {column: name for column, name in found.items() if name is not None}


def _jsonl_rows(text: str, problems: Problems) -> list[_Row]:
    rows: list[_Row] = []
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            problems.add("ill-formed line", f"line {line} is not valid JSON")
            continue
        if isinstance(record, dict):
            _add_row(rows, record, _columns(record), line, problems)
        else:
            problems.add("ill-formed line", f"line {line} is not a JSON object")
    return rows


def _add_row(
    rows: list[_Row],
    record: Mapping[str, Any],
    columns: Mapping[str, str],
    line: int,
    problems: Problems,
) -> None:
    values: dict[str, Any] = {
        column: record.get(columns.get(column, column)) for column in _COLUMNS
    }
    for column, value in values.items():
        if column == "split" and value is None:
            continue
        if not isinstance(value, str) or (column == "image" and not value.strip()):
            name = columns.get(column, column)
            sentence = f'line {line} has no text in its "{name.strip()}"'
            problems.add("ill-formed line", sentence)
            return
    split = (values["split"] or "").strip() or None
    image = os.path.normpath(values["image"].strip().replace("\\", "/"))
    rows.append(_Row(line, image, values["caption"], split))
