"""Photos in shards: WebDataset's tars, and Parquet files as of Hugging Face's datasets.

A photo is read by its place in its file, so training may draw any; webdataset reads streams.
"""

import os
import posixpath
import re
import tarfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from captioner.errors import UserError, reason_of
from captioner.files import folder_names
from captioner.outcomes import Failed
from captioner.tables import pyarrow_library
from captioner.vision.images import (
    IS_ADDRESS,
    PHOTO_SUFFIXES,
    ImageSource,
    Report,
    ignore,
    is_leftover,
    local_path,
    photo_files,
)

SHARD_SUFFIXES = (".tar", ".parquet")

# The names, in any case, of a column with the paths of photos; the first is taken.
PATH_COLUMNS = (
    *("image", "filename", "file_name", "image_name", "image_path", "file_path", "filepath"),
    *("file", "path", "photo", "img"),
)

_TEXT_SUFFIXES = (".txt", ".json")  # Of texts beside photos in a tar.
_SPARSE = ("GNU.sparse.", "SCHILY.realsize", "SUN.holes")  # Headers of files without their holes.

_NUMBERS = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}")
_LARGEST_MEMBER = 2**29  # Bytes of a photo or a text.
_ROWS = 64  # Rows of photos in Parquet that are decoded together, at most.
_TEXT_ROWS = 1000  # Rows of texts.
_LARGEST_TEXT = 2**20  # Bytes of the texts of a row in Parquet.
_BYTES = 2**26  # Of rows that are decoded together, unless one row has more.
_UNCHECKED = 2**27  # Bytes that a column of a row group may have, however tightly packed.
_LEAST_CELL = 8  # Bytes that a value takes in memory, at least.
_DENSEST = 16  # The most bytes that a larger one may have for a byte of the file.

Arrow = Any  # pyarrow has no types: a file, a schema, a type, rows, a cell.
ShardRecords = Iterator[tuple[str, dict[str, Any]]]
_Place = tuple[int, int] | None  # Offset and size in a tar.


@dataclass(frozen=True, slots=True)
class ShardMember:
    """A photo, or a text beside it, in a shard; to `load_image` a binary file."""

    shard: str
    member: str  # Its name in a tar; its row in a Parquet file, from 0.
    place: tuple[int, int]  # Offset and size in a tar; row group and row in it in a Parquet file.

    @property
    def name(self) -> str:
        """Such as `shards/00000.tar/000000012.jpg` or `photos.parquet/17`."""
        return f"{self.shard}/{self.member}"

    @property
    def image_id(self) -> str:
        """The name from the shard's folder on, which does not depend on the working folder."""
        return "/".join((*Path(os.path.abspath(self.shard)).parts[-2:], self.member))

    def __str__(self) -> str:
        return self.name

    def read(self) -> bytes:
        """The content; raises `UserError` for an empty cell of Parquet."""
        if not self.shard.lower().endswith(".tar"):
            return _CELLS.read(self.shard, *self.place, self.name)
        offset, size = self.place
        _check_size(size, self.name)
        with open(self.shard, "rb") as file:
            file.seek(offset)
            return file.read(size)


def source_status(source: object) -> os.stat_result | None:
    """The status of a photo's file or shard; None if it is gone, or the photo is in memory."""
    file = source.shard if isinstance(source, ShardMember) else source
    if isinstance(file, (str, os.PathLike)):
        with suppress(OSError, ValueError):  # A name may have a NUL.
            return os.stat(file)
    return None


def _check_size(size: int, name: str) -> None:
    if size > _LARGEST_MEMBER:
        raise UserError(f"{name} is too large: {size:,} bytes, the limit is {_LARGEST_MEMBER:,}")


class _CellReader:
    """Reads cells of all Parquet files, fast in order.

    Has at most 2 `_ROWS` in memory, of 4 `_BYTES` together, or one larger cell.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._group: tuple[int, ...] | None = None
        self._batches: Iterator[tuple[int, list[Arrow]]] = iter(())
        self._end = 0
        # Rows `_end` - 128 to `_end`, or fewer, each with the mean size in its batch.
        self._cells = deque[tuple[int, Arrow]](maxlen=2 * _ROWS)

    def read(self, shard: str, group: int, row: int, name: str) -> bytes:
        """The photo's file in a cell: bytes, or a dictionary with `bytes` and `path`."""
        with self._lock:
            size, cell = self._cell(shard, group, row)
        _check_size(size, name)
        content, path = (cell["bytes"], cell.get("path")) if isinstance(cell, dict) else (cell, "")
        if content is not None:
            return bytes(content)
        file = Path(shard).parent / (path or "")
        if file.is_file():  # A device may have no end.
            return file.read_bytes()
        raise UserError(f"{name} has no photo{f': {file} is no file' if path else ''}")

    def _cell(self, shard: str, group: int, row: int) -> tuple[int, Arrow]:
        file = os.stat(shard)  # One that has changed, or is another of this name, is opened anew.
        key = group, file.st_dev, file.st_ino, file.st_mtime_ns, file.st_ctime_ns
        if self._group != key or row < self._end - len(self._cells):
            self._batches, self._end = _cells(shard, group), 0
            self._cells.clear()
        self._group = None  # After an error the next call opens the row group anew.
        while row >= self._end:
            size, batch = next(self._batches)
            self._cells += ((size // len(batch), cell) for cell in batch)
            self._end += len(batch)
            # The last ones stay: other threads may ask for them.
            while len(self._cells) > len(batch) and sum(n for n, _ in self._cells) > 4 * _BYTES:
                self._cells.popleft()
        self._group = key
        return self._cells[row - self._end]


_CELLS = _CellReader()


def read_shards(pattern: str | os.PathLike[str], report: Report) -> ShardRecords:
    """The name and the record of each photo in the shards that a pattern names, in order.

    A record has the photo as `image`: a `ShardMember`, or a path where Parquet has one. Beside it
    are the `.txt` and the `.json` of the same name in a tar, and Parquet's columns of text.
    """
    for path in map(os.fspath, photo_files(numbered(os.fspath(pattern)), report)):
        if not os.path.isfile(path):
            is_there = os.path.exists(path)
            fault = "is a pipe or a device, not a file" if is_there else "does not exist"
            report(f"{path} {fault}")
            continue
        read = _of_tar if path.lower().endswith(".tar") else _of_parquet
        yield from read(path, report)


def find_photos(
    paths: Sequence[str], note: Report = ignore
) -> tuple[dict[str, ImageSource], list[Failed]]:
    """The photos of files, folders, patterns and shards, by name; and names without a photo.

    note: see `photo_files`.
    """
    photos: dict[str, ImageSource] = {}
    failed: list[Failed] = []
    names = cache(folder_names)
    for path in map(local_path, paths):
        if not path:
            failed.append(Failed(path, "an empty path names no photo"))
        elif path == "-":  # Standard input; a file of that name is ./-.
            photos[path] = path
        elif "://" in path and not os.path.lexists(path):
            failed.append(Failed(path, f"{path} {IS_ADDRESS}"))
        else:
            problems: list[str] = []
            named = photo_files(numbered(path), problems.append, note, names=names)
            for file in map(os.fspath, named):
                if not file.lower().endswith(SHARD_SUFFIXES):
                    photos[file] = file
                    continue
                for name, record in read_shards(file, problems.append):
                    photo = record["image"]
                    if isinstance(photo, str):
                        name = photo = os.path.join(os.path.dirname(file), photo)
                    if photo:
                        photos[name] = photo
                    else:
                        problems.append(f"{name} has no photo")
            failed += [Failed(path, problem) for problem in problems]
    return photos, failed


def numbered(pattern: str) -> list[str]:
    """The paths, or patterns, that `{00000..00099}` stands for; without it, the pattern itself."""
    braces = _NUMBERS.search(pattern)
    if braces is None or os.path.lexists(pattern):
        return [pattern]
    first, last = braces.groups()
    numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    paths = (pattern[: braces.start()] + number + pattern[braces.end() :] for number in numbers)
    return [*chain.from_iterable(map(numbered, paths))]


@contextmanager
def _reported(path: str, report: Report) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, tarfile.TarError) as error:  # pyarrow raises the first two.
        if isinstance(error, OSError) and error.errno:
            report(f"cannot read {path}: {os.strerror(error.errno)}")
        else:
            report(f"{path} cannot be read to its end: {reason_of(error)}")


def _of_tar(path: str, report: Report) -> ShardRecords:
    names: dict[str, str] = {}  # Of photos and texts, by normalised name.
    places: dict[str, _Place] = {}  # The last of a name counts, as to tar.
    links: dict[str, str] = {}
    faults: dict[str, str] = {}  # Of what has no place.
    with _reported(path, report):
        for info in _members(path):
            name = posixpath.normpath(info.name)
            if info.issparse() or any(key.startswith(_SPARSE) for key in info.pax_headers):
                places[name] = None
                faults[name] = "is a sparse file, which is not read"
            elif info.isfile():
                places[name] = info.offset_data, info.size
            elif info.issym() or info.islnk():
                folder = posixpath.dirname(name) if info.issym() else ""
                links[name] = posixpath.normpath(posixpath.join(folder, info.linkname))
                faults[name] = f"is a link to {links[name]}, which leads to no file in the tar"
                # A hard link is to what had its name before.
                places[name] = _place(links[name], places, links) if info.islnk() else None
            is_known = _is_photo(name) or name.endswith(_TEXT_SUFFIXES)
            if is_known and name in places and not is_leftover(info.name):
                names[name] = info.name
        if not any(map(_is_photo, names)):
            report(f"{path} holds no photos")
    members: dict[str, ShardMember] = {}
    for name, listed in names.items():
        if place := _place(name, places, links):
            members[name] = ShardMember(path, listed, place)
        else:
            report(f"{path}/{listed} {faults[name]}")
    for name, photo in members.items():
        if _is_photo(name):
            stem = posixpath.splitext(name)[0]
            texts = {end: members[stem + end] for end in _TEXT_SUFFIXES if stem + end in members}
            yield photo.name, {"image": photo, **texts}


def _is_photo(name: str) -> bool:
    return posixpath.splitext(name)[1].lower() in PHOTO_SUFFIXES


def _members(path: str) -> Iterator[tarfile.TarInfo]:
    """The members of a tar up to its first fault, which is raised."""
    try:
        with tarfile.open(path, "r:") as tar:
            for info in iter(tar.next, None):
                tar.members.clear()  # type: ignore[attr-defined]  # It has a kilobyte of each.
                if info.size < 0:  # The next header would be this one, for ever.
                    raise tarfile.ReadError
                yield info
            end = ShardMember(path, "", (tar.offset, tarfile.BLOCKSIZE))
            if end.read() != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError  # tarfile takes a damaged header for the end.
    except OSError:
        raise
    except Exception:  # tarfile raises many types of errors for damaged headers.
        raise tarfile.ReadError("it is damaged, cut off or compressed, or no tar") from None


def _place(name: str, places: Mapping[str, _Place], links: Mapping[str, str]) -> _Place:
    """The place of a file in a tar, behind links, also of its folders; None if it has none."""
    for _ in range(40):  # Linux's limit; a circle has no end.
        if places.get(name) or len(name) > 1000:
            break
        paths = (name, *map(str, PurePosixPath(name).parents))
        link = next((path for path in paths if path in links), None)
        if link is None:
            break
        name = posixpath.normpath(links[link] + name[len(link) :])
    return places.get(name)


def _open_parquet(path: str) -> Arrow:
    """A Parquet file, read a megabyte at a time: row groups may be large."""
    return pyarrow_library().parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _of_parquet(path: str, report: Report) -> ShardRecords:
    with _reported(path, report), _open_parquet(path) as file:
        column, is_path = _photo_column(file.schema_arrow)
        texts = [field.name for field in file.schema_arrow if _is_plain(field.type)]
        number = 0
        for group in range(file.num_row_groups):
            start = number
            _batches(file, group, [column], _ROWS)  # Refused once, not for each photo.
            for batch in _batches(file, group, texts, _TEXT_ROWS):
                if batch.nbytes > _LARGEST_TEXT * len(batch):
                    limit = f"the limit is {_LARGEST_TEXT:,} a row"
                    raise ValueError(f"texts in row {number} have {batch.nbytes:,} bytes; {limit}")
                for record in batch.to_pylist():
                    cell = ShardMember(path, str(number), (group, number - start))
                    yield cell.name, record | {"image": record[column] if is_path else cell}
                    number += 1
        if not number:
            report(f"{path} holds no photos")


def _cells(path: str, group: int) -> Iterator[tuple[int, list[Arrow]]]:
    """The photos of a row group, a few rows at a time, with their bytes; None if too large."""
    with _open_parquet(path) as file:
        column, _ = _photo_column(file.schema_arrow)
        for batch in _batches(file, group, [column], _ROWS):
            is_small = batch.nbytes <= _LARGEST_MEMBER
            yield batch.nbytes, batch.column(0).to_pylist() if is_small else [None]


def _batches(file: Arrow, group: int, columns: Sequence[str], rows: int) -> Iterator[Arrow]:
    """Some columns of a row group, so few rows at a time that they hold `_BYTES` or are one.

    A cell may be as large as its column: dictionaries store repeated ones once. Raises `ValueError`
    for a column that is far larger than in the file: a page of it may be all of it.
    """
    row_group = file.metadata.row_group(group)
    size = 0
    for chunk in map(row_group.column, range(row_group.num_columns)):
        if not f"{chunk.path_in_schema}.".startswith(tuple(f"{name}." for name in columns)):
            continue
        packed = chunk.total_compressed_size
        # Nulls and empty lists take no bytes in the file.
        unpacked = max(chunk.total_uncompressed_size, _LEAST_CELL * chunk.num_values)
        size += unpacked
        if unpacked > max(_UNCHECKED, _DENSEST * packed):
            fault = f"row group {group} has {unpacked:,} bytes, packed in {packed:,}"
            advice = "pack it less, or write smaller row groups"
            raise ValueError(f"{chunk.path_in_schema} in {fault}; {advice}")
    rows = max(1, min(rows, _BYTES // max(1, size)))
    batches: Iterator[Arrow] = file.iter_batches(rows, [group], columns, use_threads=False)
    return batches


def _photo_column(schema: Arrow) -> tuple[str, bool]:
    """The column of photos, `image` before others, and whether it has paths only."""
    # Bytes, or `bytes` and `path` as Hugging Face's datasets have them.
    is_photo = re.compile(r"(large_)?binary|struct<(.*, )?bytes: ").match
    names = [field.name for field in schema if is_photo(str(field.type))]
    if names:
        return ("image" if "image" in names else names[0]), False
    known = {field.name.strip().lower(): field.name for field in schema if _is_text(field.type)}
    for name in PATH_COLUMNS:
        if name in known:
            return known[name], True
    raise ValueError(f"it has no column of bytes, and none of paths ({', '.join(PATH_COLUMNS)})")


def _is_plain(kind: Arrow) -> bool:
    """Whether a column has texts or numbers, or lists of them."""
    return _is_text(kind) or str(getattr(kind, "value_type", kind)) in ("bool", "int32", "double")


def _is_text(kind: Arrow) -> bool:
    """Whether a column has text, or lists of it."""
    return str(getattr(kind, "value_type", kind)) in ("string", "large_string", "string_view")
