"""Tables as Parquet, written row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from captioner.errors import refuse_missing
from captioner.files import atomic_path, refuse_os_errors

_ROWS_OF_GROUP = 1000

AddRows = Callable[[Sequence[Mapping[str, Any]]], None]


def pyarrow_library() -> Any:
    """The module `pyarrow`, with `pyarrow.parquet`."""
    with refuse_missing("Parquet needs pyarrow", "shards"):
        import pyarrow.parquet
    return pyarrow


@contextmanager
def parquet_table(path: str, types: Mapping[str, str]) -> Iterator[AddRows]:
    """Yields a function that adds rows to a file, which replaces `path` at the end.

    types: pyarrow's name of the type of each column, such as `string`.
    """
    arrow = pyarrow_library()
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in types.items()])
    rows: list[Mapping[str, Any]] = []

    def add(more: Sequence[Mapping[str, Any]], at_least: int = _ROWS_OF_GROUP) -> None:
        rows.extend(more)
        if len(rows) >= at_least:
            with refuse_os_errors(f"cannot write {path}"):
                writer.write_table(arrow.Table.from_pylist(rows, schema))
            rows.clear()

    with atomic_path(path) as temporary, arrow.parquet.ParquetWriter(temporary, schema) as writer:
        yield add
        add([], at_least=1)
