"""Photos in tars and Parquet files."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write a tar of files, by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def write_parquet(path: Path, columns: Mapping[str, list[Any]], rows_of_group: int = 3) -> Path:
    """Write a table in row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(dict(columns)), path, row_group_size=rows_of_group)
    return path
