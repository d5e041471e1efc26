"""A table of `image,caption`: CSV or JSONL, one row a caption."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.data.collector import CaptionCollector, require_folder
from captioner.data.records import CaptionSet
from captioner.data.source_problems import OnProblem, Problems
from captioner.errors import UserError
from captioner.files import read_text

_COLUMNS = ("image", "caption", "split")


@dataclass(frozen=True)
class _Row:
    line: int
    image: str
    caption: str
    split: str | None


def read_table(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    split: str | None = None,
    on_problem: OnProblem = "refuse",
    check_files: bool = True,
) -> CaptionSet:
    """Read a table.

    annotations: a `.csv` file with a header, or a `.jsonl` file with an object a line. Columns are
        `image`, `caption` and optionally `split`; others are ignored. Duplicate rows are allowed.
    images: the folder of relative image paths; None: the folder of the table.
    split: None: every row.
    on_problem: see `Problems`.
    check_files: whether the photos must exist.

    `image_id` is the path in the table. Raises `UserError` for a missing or ill-formed file and an
    unknown split, and as `CaptionCollector.finish` does.
    """
    file = Path(annotations)
    folder = file.parent if images is None else Path(images)
    collector = CaptionCollector(f"table {file}", on_problem, check_files)
    text = read_text(file, "table")
    if file.suffix.lower() == ".csv":
        rows = _csv_rows(text, file, collector.problems)
    elif file.suffix.lower() == ".jsonl":
        rows = _jsonl_rows(text, collector.problems)
    else:
        raise UserError(f"table {file} is neither .csv nor .jsonl")
    if check_files:
        require_folder(folder)
    if split is not None:
        _require_split(rows, split, file)
    for row in rows:
        image_id, record = str(Path(row.image)), f"line {row.line}"
        image_record = f"image {image_id} ({record})"
        if not collector.is_in_split(image_id, row.split, image_record):
            continue
        if split is None or row.split == split:
            if not collector.has_image(image_id):
                collector.add_image(image_id, folder / image_id, image_record)
            collector.add_caption(image_id, row.caption, record)
    return collector.finish()


def _require_split(rows: list[_Row], split: str, file: Path) -> None:
    present = sorted({row.split for row in rows if row.split is not None})
    if split not in present:
        only = f", only {', '.join(present)}" if present else ': it has no "split" column'
        raise UserError(f"table {file} has no split {split!r}{only}")


def _csv_rows(text: str, file: Path, problems: Problems) -> list[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[_Row] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        for name in _COLUMNS:
            if header.count(name) > 1:
                raise UserError(f'table {file} has the column "{name}" twice')
            if name not in header and name != "split":
                raise UserError(f'table {file} has no column "{name}" in its first line')
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) == len(header):
                row = dict(zip(header, cells, strict=True))
                _add_row(rows, row, line, problems)
            elif cells:
                sentence = f"line {line} has {len(cells)} cells, the header {len(header)}"
                problems.add("ill-formed line", f"line {line}", sentence)
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"table {file} is not valid CSV (line {reader.line_num}: {error})"
        ) from None
    return rows


def _jsonl_rows(text: str, problems: Problems) -> list[_Row]:
    rows: list[_Row] = []
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            problems.add("ill-formed line", f"line {line}", f"line {line} is not valid JSON")
            continue
        if isinstance(record, dict):
            _add_row(rows, record, line, problems)
        else:
            problems.add("ill-formed line", f"line {line}", f"line {line} is not a JSON object")
    return rows


def _add_row(rows: list[_Row], record: dict[str, Any], line: int, problems: Problems) -> None:
    for name in _COLUMNS:
        value = record.get(name)
        if name == "split" and value is None:
            continue
        if not isinstance(value, str) or (name == "image" and not value.strip()):
            sentence = f'line {line} has no text in its "{name}"'
            problems.add("ill-formed line", f"line {line}", sentence)
            return
    split = (record.get("split") or "").strip() or None
    rows.append(_Row(line, record["image"].strip(), record["caption"], split))
