"""Reads the photos of Parquet files, a few rows at a time."""

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

from captioner.tables import pyarrow_library

# The names, in any case, of a column with the paths of photos; the first is taken.
PATH_COLUMNS = (
    *("image", "filename", "file_name", "image_name", "image_path", "file_path", "filepath"),
    *("file", "path", "photo", "img"),
)

ROWS = 64  # Rows of Parquet that are decoded together, at most.
_BYTES = 2**26  # Of rows that are decoded together, unless one row has more.
_UNCHECKED = 2**27  # Bytes that columns of a row group may have, however tightly packed.
_DENSEST = 16  # The most bytes that larger ones may have for a byte of the file.


Arrow = Any  # pyarrow has no types: a file, a schema, a type, a column.


class CellReader:
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
                while len(self._columns) > (1 if self._held > 4 * _BYTES else 2 * ROWS):
                    self._held -= self._columns.popleft().nbytes
            self._key = key
            return pyarrow_library().chunked_array([*self._columns])[row - self._end].as_py()


def open_parquet(path: str) -> Arrow:
    """A Parquet file, read a megabyte at a time: row groups may be large."""
    return pyarrow_library().parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _photos_of_group(path: str, group: int) -> Iterator[Arrow]:
    with open_parquet(path) as file:
        column, _ = photo_column(file.schema_arrow)
        yield from batches_of(file, group, [column], ROWS)


def batches_of(file: Arrow, group: int, columns: Sequence[str], rows: int) -> Iterator[Arrow]:
    """Some columns of a row group, so few rows at a time that they hold `_BYTES` or are one.

    A cell may be as large as its column: dictionaries store repeated ones once. Raises `ValueError`
    for columns that are far larger than in the file: a page of them may be all of it.
    """
    row_group = file.metadata.row_group(group)
    names = tuple(f"{name}." for name in columns)
    chunks = [*map(row_group.column, range(row_group.num_columns))]
    chunks = [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(names)]
    packed = sum(chunk.total_compressed_size for chunk in chunks)
    # Nulls and empty lists take no bytes in the file.
    size = sum(max(chunk.total_uncompressed_size, 8 * chunk.num_values) for chunk in chunks)
    if size > max(_UNCHECKED, _DENSEST * packed):
        fault = f"{', '.join(columns)} in row group {group} has {size:,} bytes in {packed:,}"
        raise ValueError(f"{fault}; pack it less, or write smaller row groups")
    rows = max(1, min(rows, _BYTES // max(1, size)))
    return file.iter_batches(rows, [group], columns, use_threads=False)  # type: ignore[no-any-return]


def photo_column(schema: Arrow) -> tuple[str, bool]:
    """The column of photos, `image` before others, and whether it has paths only."""
    # Bytes, or `bytes` and `path` as Hugging Face's datasets have them.
    is_photo = re.compile(r"(large_)?binary|struct<(.*, )?bytes: ").match
    names = [field.name for field in schema if is_photo(str(field.type))]
    if names:
        return min(names, key=lambda name: name != "image"), False
    known = {field.name.strip().lower(): field.name for field in schema if _is_text(field.type)}
    for name in filter(known.get, PATH_COLUMNS):
        return known[name], True
    raise ValueError(f"it has no column of bytes, and none of paths ({', '.join(PATH_COLUMNS)})")


def is_plain(kind: Arrow) -> bool:
    """Whether a column has texts or numbers, or lists of them."""
    return _is_text(kind) or str(getattr(kind, "value_type", kind)) in ("bool", "int32", "double")


def _is_text(kind: Arrow) -> bool:
    """Whether a column has text, or lists of it."""
    return str(getattr(kind, "value_type", kind)) in ("string", "large_string", "string_view")
