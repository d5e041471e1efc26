"""The sink of attention maps as numbers: a file for NumPy, or a Parquet table."""

from contextlib import ExitStack
from zipfile import ZipFile

import numpy as np

from captioner.arrays import Array
from captioner.files import atomic_path, refuse_os_errors
from captioner.outputs.record import PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.render.overlay import check_suffix
from captioner.tables import parquet_table, pyarrow_library

_TYPES = {"image": "string", "words": "string[]", "maps": "float[]", "shape": "int32[]"}


class SavedMaps(Sink):
    """The maps of the model's captions, as they come; the file is complete at the end.

    .npz: `names` (N,) of the photos, and of photo i `words_i` (T,) and `maps_i` (T, rows, columns).
    .parquet: a row a photo; `maps` are T * rows * columns floats, of this `shape`.
    """

    needs_maps = takes_unsure = True

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        check_suffix(path, (".npz", ".parquet"))
        if path.lower().endswith(".parquet"):
            pyarrow_library()
        self._names: list[str] = []
        self._stack = ExitStack()

    def add(self, record: PhotoRecord) -> None:
        """Write the maps of the caption that the model made; without any, a file there stays."""
        if not (caption := record.made):
            return
        if not self._names and self.path.lower().endswith(".parquet"):
            self._add_rows = self._stack.enter_context(parquet_table(self.path, _TYPES))
        elif not self._names:
            temporary = self._stack.enter_context(atomic_path(self.path))
            self._archive = self._stack.enter_context(ZipFile(temporary, "w"))
        maps = caption.attention  # (T, rows, columns)
        if self.path.lower().endswith(".parquet"):
            row = {"image": record.image, "words": list(caption.words), "shape": list(maps.shape)}
            self._add_rows([{**row, "maps": maps.ravel()}])
        else:
            self._write(f"words_{len(self._names)}", np.array(caption.words, str))  # (T,)
            self._write(f"maps_{len(self._names)}", maps)
        self._names.append(record.image)

    def _write(self, name: str, array: Array) -> None:
        problem = f"cannot write {self.path}"
        with refuse_os_errors(problem), self._archive.open(f"{name}.npy", "w") as file:
            np.lib.format.write_array(file, array)

    def close(self) -> None:
        """Write the names, and complete the file."""
        if self._names and not self.path.lower().endswith(".parquet"):
            self._write("names", np.array(self._names, str))  # (N,)
        self._stack.close()
