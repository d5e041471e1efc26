"""Attention maps of captions as numbers: a file for NumPy, or a Parquet table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from zipfile import ZipFile

import numpy as np

from captioner.arrays import Array
from captioner.caption.caption import Caption
from captioner.files import atomic_path, refuse_os_errors
from captioner.tables import parquet_table

SUFFIXES = (".npz", ".parquet")

_TYPES = {"image": "string", "words": "string[]", "maps": "float[]", "shape": "int32[]"}


@contextmanager
def saved_maps(path: str) -> Iterator[Callable[[Caption], None]]:
    """Yields a function that adds the maps of a caption; the file is complete at the end.

    .npz: `names` (N,) of the photos, and of photo i `words_i` (T,) and `maps_i` (T, rows, columns).
    .parquet: a row a photo; `maps` are T * rows * columns floats, of this `shape`.
    """
    if path.lower().endswith(".parquet"):
        with parquet_table(path, _TYPES) as add_rows:
            yield lambda caption: add_rows([_row(caption)])
        return
    names: list[str] = []
    problem = f"cannot write {path}"
    with atomic_path(path) as temporary, ZipFile(temporary, "w") as archive:

        def write(name: str, array: Array) -> None:
            with refuse_os_errors(problem), archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)

        def add(caption: Caption) -> None:
            write(f"words_{len(names)}", np.array(caption.words, str))  # (T,)
            write(f"maps_{len(names)}", caption.attention)  # (T, rows, columns)
            names.append(caption.name or "")

        yield add
        write("names", np.array(names, str))  # (N,)


def _row(caption: Caption) -> dict[str, object]:
    maps = caption.attention
    photo = {"image": caption.name, "words": list(caption.words)}
    return {**photo, "maps": maps.ravel(), "shape": list(maps.shape)}
