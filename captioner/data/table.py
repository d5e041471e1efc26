"""A table of photos and captions: CSV, TSV or JSONL, one row a caption."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from captioner.data.example import Collector, Example, Problems
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


class _Row(NamedTuple):
    line: int
    image: str
    caption: str
    split: str | None


def read_table(annotations: Path, images: Path, split: str | None, collector: Collector) -> None:
    """Read a table.

    annotations: a `.csv` or `.tsv` file with a header, separated by commas, semicolons or tabs, or
        a `.jsonl` file with an object a line. `_COLUMNS` has the names of the columns; others are
        ignored, and the split is optional. Duplicate rows are allowed.
    images: the folder of relative image paths.
    split: None: every row. `train` and `val` of a table without splits are drawn by photo, as the
        note of the problems says.

    `image_id` is the path in the table, with slashes for backslashes.
    """
    _collect(annotations, images, [split], collector)


def read_splits(
    annotations: Path, images: Path | None, splits: Sequence[str | None], problems: Problems
) -> list[list[Example]]:
    """Read several splits of a table as `read_table` does; one error has all their problems."""
    collector = Collector(problems)
    _collect(annotations, images or annotations.parent, splits, collector)
    examples = collector.examples()
    return [
        [each for each in examples if split in (None, collector.splits[each.image_id])]
        for split in splits
    ]


def _collect(file: Path, images: Path, splits: Sequence[str | None], collector: Collector) -> None:
    problems = collector.problems
    problems.source = f"table {file}"
    rows = _read_rows(file, problems)
    if {TRAIN, VALIDATION} & set(splits) and not any(row.split for row in rows):
        rows, problems.note = _with_drawn_splits(rows, file)
    if splits != [None] and any(row.split for row in rows):
        for row in rows:
            if row.split is None:
                problems.add("row without a split", f"line {row.line} has no split")
    is_refused = problems.on_problem == "refuse" and len(problems) > 0  # `examples` says why.
    for split in splits:
        if split is not None and not is_refused:
            _require_split(rows, split, file, bool(problems.note))
    for row in rows:
        record = f"line {row.line}"
        image_record = f"image {row.image} ({record})"
        if not collector.is_in_split(row.image, row.split, image_record):
            continue
        if row.split in splits or None in splits:
            if row.image not in collector:
                collector.add_image(row.image, images / row.image, image_record)
            collector.add_caption(row.image, row.caption, record)


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
    rows = [row._replace(split=VALIDATION if row.image in drawn else TRAIN) for row in rows]
    return rows, (
        f"table {file} has no splits: {count:,} of its {len(photos):,} photos, drawn with seed "
        f"{_SEED}, are the split {VALIDATION}, the others {TRAIN}"
    )


def _require_split(rows: list[_Row], split: str, file: Path, is_drawn: bool) -> None:
    present = sorted({row.split for row in rows if row.split is not None})
    if split in present:
        return
    if is_drawn and split == VALIDATION and present:
        raise UserError(f"table {file} has too few photos for validation: it takes 4 at least")
    lacking = 'no "split" column' if rows else "no rows"
    only = f", only {', '.join(present)}" if present else f": it has {lacking}"
    raise UserError(f"table {file} has no split {split!r}{only}")


def _read_rows(file: Path, problems: Problems) -> list[_Row]:
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"table {file} is none of {', '.join(SUFFIXES)}")
    text = read_text(file, "table")
    records = _of_jsonl(text, problems) if suffix == ".jsonl" else _of_csv(text, file, problems)
    rows = []
    for line, record in records:
        columns = _columns(tuple(record))
        values: list[Any] = [record.get(columns.get(column, column)) for column in _COLUMNS]
        image, caption, split = values
        are_valid = {
            "image": isinstance(image, str) and image.strip() != "",
            "caption": isinstance(caption, str),
            "split": split is None or isinstance(split, str),
        }
        bad = [column for column, is_valid in are_valid.items() if not is_valid]
        if bad:
            name = columns.get(bad[0], bad[0]).strip()
            problems.add("ill-formed line", f'line {line} has no text in its "{name}"')
            continue
        path = os.path.normpath(image.strip().replace("\\", "/"))
        rows.append(_Row(line, path, caption, (split or "").strip() or None))
    return rows


@cache
def _columns(names: tuple[str, ...]) -> dict[str, str]:
    """The table's own names of the columns that it has."""
    own = {name.strip().lower(): name for name in names}
    return {
        column: next(own[name] for name in known if name in own)
        for column, known in _COLUMNS.items()
        if not own.keys().isdisjoint(known)
    }


def _of_csv(text: str, file: Path, problems: Problems) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The line and the cells by column of each row of a CSV."""
    names = text.partition("\n")[0].replace('"', "")
    separator = max(_SEPARATORS, key=lambda each: len(_columns(tuple(names.split(each)))))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    try:
        header = next(reader, [])
        columns = _columns(tuple(header))
        lacking = [column for column in ("image", "caption") if column not in columns]
        if lacking:
            faults = (f'no column "{each}" ({", ".join(_COLUMNS[each])})' for each in lacking)
            raise UserError(f"table {file} has {' and '.join(faults)} in its first line")
        for cells in reader:
            if not any(map(str.strip, cells)):
                continue  # Spreadsheets write rows of separators below a table.
            line = reader.line_num
            if len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            else:
                kind = "ill-formed line"
                if len(cells) > len(header):
                    kind = f"line with too many cells (put captions with {separator!r} in quotes)"
                sentence = f"line {line} has {len(cells)} cells, the header {len(header)}"
                problems.add(kind, sentence)
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise UserError(f"table {file} is not valid CSV ({where}: {error})") from None


def _of_jsonl(text: str, problems: Problems) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The number and the object of each line of a JSONL."""
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            problems.add("ill-formed line", f"line {line} is not valid JSON")
            continue
        if isinstance(record, dict):
            yield line, record
        else:
            problems.add("ill-formed line", f"line {line} is not a JSON object")
