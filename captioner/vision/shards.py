"""Photos in shards: WebDataset's tars, and Parquet files as of Hugging Face's datasets.

A photo is read by its place in its file, so training may draw any; webdataset reads streams.
"""

import os
import posixpath
import re
import tarfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from captioner.errors import UserError, reason_of
from captioner.tables import pyarrow_library
from captioner.vision.formats import check_file_size
from captioner.vision.images import (
    PHOTO_SUFFIXES,
    Report,
    is_leftover,
    photo_files,
)

SHARD_SUFFIXES = (".tar", ".parquet")

# The names, in any case, of a column with the paths of photos; the first is taken.
PATH_COLUMNS = (
    *("image", "filename", "file_name", "image_name", "image_path", "file_path", "filepath"),
    *("file", "path", "photo", "img"),
)

_TEXT_SUFFIXES = (".txt", ".json")  # Of texts beside photos in a tar.
_NUMBERS = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}")
_ROWS = 64  # Rows of Parquet that are decoded together, at most.
_BYTES = 2**26  # Of rows that are decoded together, unless one row has more.
_UNCHECKED = 2**27  # Bytes that columns of a row group may have, however tightly packed.
_DENSEST = 16  # The most bytes that larger ones may have for a byte of the file.

Arrow = Any  # pyarrow has no types: a file, a schema, a type, a column.
ShardRecords = Iterator[tuple[str, dict[str, Any]]]


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
        first, second = self.place
        if self.shard.lower().endswith(".tar"):
            check_file_size(second, self.name)
            with open(self.shard, "rb") as file:
                file.seek(first)
                return file.read(second)
        cell = _CELLS.read(self.shard, first, second)
        # The photo's file: bytes, or a dictionary with `bytes` and `path`.
        content, path = (cell["bytes"], cell.get("path")) if isinstance(cell, dict) else (cell, "")
        if content is not None:
            check_file_size(len(content), self.name)
            return bytes(content)
        beside = Path(self.shard).parent / (path or "")
        if beside.is_file():  # A device may have no end.
            return beside.read_bytes()
        raise UserError(f"{self} has no photo{f': {beside} is no file' if path else ''}")


class _CellReader:
    """Reads the photos of Parquet files, fast in order; has a few rows of one row group."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._key: tuple[int, ...] | None = None
        self._batches: Iterator[Arrow] = iter(())
        self._columns = deque[Arrow]()  # The last ones stay: other threads may ask for them.
        self._held = self._end = 0  # Their bytes, and the row behind them.

    def read(self, shard: str, group: int, row: int) -> Any:
        """What is in the cell of a photo."""
        file = os.stat(shard)  # Another file may get its name.
        key = group, file.st_dev, file.st_ino, file.st_mtime_ns
        with self._lock:
            if key != self._key or row < self._end - sum(map(len, self._columns)):
                self._batches = _photos_of_group(shard, group)
                self._held = self._end = 0
                self._columns.clear()
            self._key = None  # After an error the next call opens the row group anew.
            while row >= self._end:
                column = next(self._batches).column(0)
                self._columns.append(column)
                self._held += column.nbytes
                self._end += len(column)
                while len(self._columns) > (1 if self._held > 4 * _BYTES else 2 * _ROWS):
                    self._held -= self._columns.popleft().nbytes
            self._key = key
            return pyarrow_library().chunked_array([*self._columns])[row - self._end].as_py()


_CELLS = _CellReader()


def source_status(source: object) -> os.stat_result | None:
    """The status of a photo's file or shard; None if it is gone, or the photo is in memory."""
    file = source.shard if isinstance(source, ShardMember) else source
    if isinstance(file, (str, os.PathLike)):
        with suppress(OSError, ValueError):  # A name may have a NUL.
            return os.stat(file)
    return None


def read_shards(pattern: str | os.PathLike[str], report: Report) -> ShardRecords:
    """The name and the record of each photo in the shards that a pattern names, in order.

    A record has the photo as `image`: a `ShardMember`, or a path where Parquet has one. Beside it
    are the `.txt` and the `.json` of the same name in a tar, and Parquet's columns of text.
    """
    for path in photo_files(numbered(os.fspath(pattern)), report):
        yield from shard_records(os.fspath(path), report)


def shard_records(path: str, report: Report) -> ShardRecords:
    """The name and the record of each photo of a shard; see `read_shards`."""
    read = _of_tar if path.lower().endswith(".tar") else _of_parquet
    if os.path.isfile(path):
        yield from read(path, report)
    else:
        report(f"{path} does not exist, or is a pipe or a device")


@contextmanager
def _reported(path: str, report: Report) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, tarfile.TarError) as error:  # pyarrow raises the first two.
        reason = getattr(error, "strerror", None) or reason_of(error)
        report(f"{path} cannot be read to its end: {reason}")


def numbered(pattern: str) -> list[str]:
    """The paths, or patterns, that `{00000..00099}` stands for; without it, the pattern itself."""
    braces = _NUMBERS.search(pattern)
    if braces is None or os.path.lexists(pattern):
        return [pattern]
    first, last = braces.groups()
    numbers = (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    paths = (pattern[: braces.start()] + number + pattern[braces.end() :] for number in numbers)
    return [*chain.from_iterable(map(numbered, paths))]


def _of_tar(path: str, report: Report) -> ShardRecords:
    listed: dict[str, str] = {}  # The names of photos and texts, by normalised name.
    # Offset and size, or the target of a symbolic link. The last of a name counts, as to tar.
    places: dict[str, tuple[int, int] | str | None] = {}
    with _reported(path, report):
        for info in _members(path):
            name = posixpath.normpath(info.name)
            if info.issym():
                places[name] = posixpath.join(posixpath.dirname(name), info.linkname)
            elif info.islnk():  # To what had its name before.
                places[name] = places.get(posixpath.normpath(info.linkname))
            elif info.isfile():
                places[name] = None if info.issparse() else (info.offset_data, info.size)
            is_known = _is_photo(name) or name.endswith(_TEXT_SUFFIXES)
            if is_known and name in places and not is_leftover(info.name):
                listed[name] = info.name
        if not any(map(_is_photo, listed)):
            report(f"{path} holds no photos")
    members: dict[str, ShardMember] = {}
    for name, member in listed.items():
        place = places[name]
        if isinstance(place, str):
            place = places.get(posixpath.normpath(place))
        if isinstance(place, tuple):
            members[name] = ShardMember(path, member, place)
        else:
            report(f"{path}/{member} is a sparse file, or a link to no file in the tar: not read")
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
            for info in tar:
                if info.size < 0:  # The next header would be this one, for ever.
                    raise tarfile.ReadError
                yield info
            end = ShardMember(path, "", (tar.offset, tarfile.BLOCKSIZE)).read()
            if end != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError  # tarfile takes a damaged header for the end.
    except OSError:
        raise
    except Exception:  # tarfile raises many types of errors for damaged headers.
        raise tarfile.ReadError("it is damaged, cut off or compressed, or no tar") from None


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
            for batch in _batches(file, group, texts, 10 * _ROWS):
                for record in batch.to_pylist():
                    cell = ShardMember(path, str(number), (group, number - start))
                    yield cell.name, record | {"image": record[column] if is_path else cell}
                    number += 1
        if not number:
            report(f"{path} holds no photos")


def _photos_of_group(path: str, group: int) -> Iterator[Arrow]:
    with _open_parquet(path) as file:
        column, _ = _photo_column(file.schema_arrow)
        yield from _batches(file, group, [column], _ROWS)


def _batches(file: Arrow, group: int, columns: Sequence[str], rows: int) -> Iterator[Arrow]:
    """Some columns of a row group, so few rows at a time that they hold `_BYTES` or are one.

    A cell may be as large as its column: dictionaries store repeated ones once. Raises `ValueError`
    for columns that are far larger than in the file: a page of them may be all of it.
    """
    row_group = file.metadata.row_group(group)
    chunks = map(row_group.column, range(row_group.num_columns))
    names = tuple(f"{name}." for name in columns)
    chunks = [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(names)]
    packed = sum(chunk.total_compressed_size for chunk in chunks)
    # Nulls and empty lists take no bytes in the file.
    size = sum(max(chunk.total_uncompressed_size, 8 * chunk.num_values) for chunk in chunks)
    if size > max(_UNCHECKED, _DENSEST * packed):
        fault = (
            f"{', '.join(columns)} in row group {group} has {size:,} bytes, packed in {packed:,}"
        )
        raise ValueError(f"{fault}; pack it less, or write smaller row groups")
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
