"""A table of photos and captions: CSV, TSV, JSONL, JSON, Parquet, WebDataset's tars, a folder."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from captioner.data.example import Collector, Example, Problems
from captioner.data.photo_descriptions import photo_descriptions
from captioner.errors import UserError, counted
from captioner.files import read_json, read_text
from captioner.vision.find_images import find_images
from captioner.vision.shards import PATH_COLUMNS, SHARD_SUFFIXES, ShardMember, read_shards

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", *SHARD_SUFFIXES)

_METADATA = ("metadata.jsonl", "metadata.csv")
"""The tables in a folder of photos, as the ImageFolder of Hugging Face's datasets has them."""

_BY_CAPTIONER = {"log_probability", "model"}
"""Columns by which captioner's own captions are known."""

_COLUMNS = {
    "image": PATH_COLUMNS,
    "caption": ("caption", "text", "comment", "description", "captions"),
    "split": ("split",),
}
"""The names of each column, in any case; the first that a table has is taken."""

_SEPARATORS = ",;\t"

TRAIN, VALIDATION = "train", "val"
"""The splits that are drawn from a table without splits."""

_TOO_FEW = "has too few photos for validation: it takes 4 at least"

_SEED = 0


class _Row(NamedTuple):
    """record: its name, for messages. photo: in a shard, named `image`."""

    record: str
    image: str
    caption: str
    split: str | None
    photo: ShardMember | None = None


def read_table(annotations: Path, images: Path, split: str | None, collector: Collector) -> None:
    """Read a table.

    annotations: a `.csv` or `.tsv` file with a header, separated by commas, semicolons or tabs; a
        `.jsonl` file with an object a line, or a `.json` file with a list of them. `_COLUMNS` has
        the names of the columns; others are ignored, and the split is optional. A caption may be a
        list of them. Duplicate rows are allowed. Or a folder: see `_of_folder`. Or a pattern of
        shards: see `read_shards`.
    images: the folder of relative image paths.
    split: None: every row. `train` and `val` of a table without splits are drawn by photo, as the
        note of the problems says.

    `image_id` is the path in the table, with slashes for backslashes, or `ShardMember.image_id`.
    """
    _collect(annotations, images, [split], collector)


def read_splits(
    annotations: Path, images: Path | None, splits: Sequence[str | None], problems: Problems
) -> list[list[Example]]:
    """Read several splits of a table as `read_table` does; one error has all their problems."""
    collector = Collector(problems)
    _collect(annotations, photo_folder(annotations, images), splits, collector)
    examples = collector.examples()
    return [
        [each for each in examples if split in (None, collector.splits[each.image_id])]
        for split in splits
    ]


def photo_folder(annotations: Path, images: str | os.PathLike[str] | None) -> Path:
    """The folder of the photos: if not given, of the annotations."""
    if images is not None:
        return Path(images)
    return annotations if annotations.is_dir() else annotations.parent


def _collect(file: Path, images: Path, splits: Sequence[str | None], collector: Collector) -> None:
    problems = collector.problems
    kind = "shards" if file.suffix.lower() in SHARD_SUFFIXES else "table"
    problems.source = f"{'folder' if file.is_dir() else kind} {file}"
    rows = (
        _of_folder(file, problems) if file.is_dir() else _rows(_records(file, problems), problems)
    )
    if {TRAIN, VALIDATION} & set(splits) and not any(row.split for row in rows):
        if problems.draws_splits:
            rows, problems.note = _with_drawn_splits(rows, problems.source)
        else:
            splits = [None]
    if splits != [None] and any(row.split for row in rows):
        for row in rows:
            if row.split is None:
                problems.add("row without a split", f"{row.record} has no split")
    is_refused = problems.on_problem == "refuse" and len(problems) > 0  # `examples` says why.
    for split in splits:
        if split is not None and not is_refused:
            _require_split(rows, split, problems)
    photos: dict[str, ShardMember | None] = {}
    for row in rows:
        image_record = f"image {row.image} ({row.record})"
        if not collector.is_in_split(row.image, row.split, image_record):
            continue
        if row.split in splits or None in splits:
            is_same = photos.setdefault(row.image, row.photo) == row.photo  # Shards share names.
            is_known = is_same and row.image in collector
            path = row.photo or images / row.image
            if is_known or collector.add_image(row.image, path, image_record):
                collector.add_caption(row.image, row.caption, row.record)


def _draw_validation(images: Iterable[str], source: str) -> tuple[set[str], str]:
    """A tenth of the photos, for validation, and a sentence that says so. source: their file.

    At least 50 photos, but at most a quarter, and two in any case, or none of fewer than four. They
    are drawn by a hash of their path, so that most keep their split when others are added.
    """
    photos = sorted(
        set(images),
        key=lambda image: hashlib.sha256(f"{_SEED} {image}".encode("utf-8", "replace")).digest(),
    )
    count = max(len(photos) // 10, min(50, max(2, len(photos) // 4))) if len(photos) >= 4 else 0
    return set(photos[:count]), (
        f"{source} has no splits: {count:,} of its {len(photos):,} photos, drawn with seed "
        f"{_SEED}, are the split {VALIDATION}, the others {TRAIN}"
    )


def drawn_splits(
    examples: Sequence[Example], folder: Path, problems: Problems
) -> tuple[list[Example], list[Example]]:
    """The photos of a source without splits as `train` and `val`. folder: of the photos."""
    by_name = {Path(os.path.relpath(str(e.path), folder)).as_posix(): e for e in examples}
    drawn, problems.note = _draw_validation(by_name, problems.source)
    if not drawn:
        raise UserError(f"{problems.source} {_TOO_FEW}")
    train = [each for name, each in by_name.items() if name not in drawn]
    return train, [each for name, each in by_name.items() if name in drawn]


def _with_drawn_splits(rows: list[_Row], source: str) -> tuple[list[_Row], str]:
    drawn, note = _draw_validation((row.image for row in rows), source)
    split_of = {row.image: VALIDATION if row.image in drawn else TRAIN for row in rows}
    return [row._replace(split=split_of[row.image]) for row in rows], note


def _require_split(rows: list[_Row], split: str, problems: Problems) -> None:
    present, source = sorted({row.split for row in rows if row.split is not None}), problems.source
    if split in present:
        return
    if problems.note and split == VALIDATION and present:
        counts = f" ({problems.counts})" if problems.counts else ""
        raise UserError(f"{source} {_TOO_FEW}{counts}")
    lacking = 'no "split" column' if rows else "no rows"
    only = f", only {', '.join(present)}" if present else f": it has {lacking}"
    raise UserError(f"{source} has no split {split!r}{only}")


def _of_folder(folder: Path, problems: Problems) -> list[_Row]:
    """A row for each line of the text `photo.txt` beside a photo, in the folder or below it.

    A photo without a text has its rows of `_METADATA` in the folder, or else one of its
    `photo_descriptions`; what captioner wrote counts if `problems.by_captioner` says so.
    """
    table = next((folder / name for name in _METADATA if (folder / name).is_file()), None)
    records = [] if table is None else list(_records(table, problems))
    takes_all = problems.by_captioner
    kept = [each for each in records if takes_all or not each[1].keys() >= _BY_CAPTIONER]
    left_out = len(records) - len(kept)
    rows_of = defaultdict(list)
    for row in _rows(kept, problems):
        rows_of[row.image].append(row)
    counts: Counter[str] = Counter()
    for photo in find_images([folder]):
        image, text = photo.relative_to(folder).as_posix(), photo.with_suffix(".txt")
        lines = read_text(text).split("\n") if text.is_file() else []
        if own := [_Row(f"{text}", image, line, None) for line in lines if line.strip()]:
            kind, rows_of[image] = "with a text beside them", own
        elif table is not None and image in rows_of:
            kind = f"in {table.name}"
        else:
            kind, found = "without", []
            try:
                found = list(photo_descriptions(photo))
            except UserError as error:
                problems.add("unreadable description", str(error))
            usable = [each for each in found if takes_all or not each[2]]
            left_out += bool(found) and not usable
            if usable:
                kind = usable[0][0]
                rows_of[image] = [_Row(f"{photo}", image, usable[0][1], None)]
        counts[kind] += 1
    listed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    problems.counts = f"{counted(counts.total(), 'photo')}, {listed}"
    if left_out:
        problems.counts += f"; captions by captioner left out: {left_out:,}"
    if not rows_of:
        named = f"photo.txt beside photo.jpg, {', '.join(_METADATA)}, XMP sidecars or the photos"
        raise UserError(f"{problems.source}: {problems.counts}; captions are in {named}")
    return [row for rows in rows_of.values() for row in rows]


def _records(file: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The name, for messages, and the cells by column of each row."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"table {file} is none of {', '.join(SUFFIXES)}")
    if suffix == ".json":
        return _of_json(file, problems)
    if suffix in SHARD_SUFFIXES:
        return _of_shards(file, problems)
    text = read_text(file, "table")
    return _of_jsonl(text, problems) if suffix == ".jsonl" else _of_csv(text, file, problems)


def _rows(records: Iterable[tuple[str, Mapping[str, Any]]], problems: Problems) -> list[_Row]:
    rows = []
    for where, record in records:
        columns = _columns(tuple(record))
        values: list[Any] = [record.get(columns.get(column, column)) for column in _COLUMNS]
        image, caption, split = values
        captions = caption if isinstance(caption, list) else [caption]
        are_valid = {
            "image": isinstance(image, ShardMember) or (isinstance(image, str) and image.strip()),
            "caption": captions and all(isinstance(each, str) for each in captions),
            "split": split is None or isinstance(split, str),
        }
        bad = [column for column, is_valid in are_valid.items() if not is_valid]
        if bad:
            name = columns.get(bad[0], bad[0]).strip()
            problems.add("ill-formed line", f'{where} has no text in its "{name}"')
            continue
        photo = image if isinstance(image, ShardMember) else None
        name = photo.image_id if photo else os.path.normpath(image.strip().replace("\\", "/"))
        split = (split or "").strip() or None
        rows += [_Row(where, name, each, split, photo) for each in captions]
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


def _of_csv(text: str, file: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
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
            line = f"line {reader.line_num}"
            if len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            else:
                kind = "ill-formed line"
                if len(cells) > len(header):
                    kind = f"line with too many cells (put captions with {separator!r} in quotes)"
                sentence = f"{line} has {len(cells)} cells, the header {len(header)}"
                problems.add(kind, sentence)
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise UserError(f"table {file} is not valid CSV ({where}: {error})") from None


def _of_shards(pattern: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    def report(sentence: str) -> None:
        problems.add("unreadable shard", sentence)

    for name, record in read_shards(pattern, report):
        try:  # A tar has a caption a line of the text, or those in JSON.
            described = json.loads(record.pop(".json").read()) if ".json" in record else {}
            if not isinstance(described, dict):
                raise ValueError
            if ".txt" in record:
                lines = record.pop(".txt").read().decode("utf-8-sig").split("\n")
                described["caption"] = [line for line in lines if line.strip()]
        except (ValueError, RecursionError):
            what = "beside it a .json that is no JSON object, or a .txt that is not UTF-8"
            problems.add("ill-formed line", f"{name} has {what}")
        else:
            yield name, described | record


def _of_json(file: Path, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    document = read_json(file, "table")
    if not isinstance(document, list):
        raise UserError(f"table {file} is not a list of rows")
    for number, record in enumerate(document):
        if isinstance(record, dict):
            yield f"record {number}", record
        else:
            problems.add("ill-formed line", f"record {number} is not a JSON object")


def _of_jsonl(text: str, problems: Problems) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError):
            problems.add("ill-formed line", f"line {line} is not valid JSON")
            continue
        if isinstance(record, dict):
            yield f"line {line}", record
        else:
            problems.add("ill-formed line", f"line {line} is not a JSON object")
