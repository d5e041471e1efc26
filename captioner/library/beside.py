"""The names of sidecars and texts beside photos."""

import mimetypes
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.library.words import Program

_SIDECAR_FOR = re.compile(rb"""SidecarForExtension(?:\s*=\s*["']|>)\s*(\w+)""")
_FOLDERS = 16
ENDINGS = (".xmp", ".txt")
"""Of the files beside photos."""


class Beside:
    """Where the files beside photos are. It keeps the names of the folders that it saw last.

    These are not read again: a new sidecar may change where another photo's goes.
    """

    def __init__(self) -> None:
        self.names = lru_cache(_FOLDERS)(_names)
        self._stems = lru_cache(_FOLDERS)(self._list_stems)

    def sidecars(self, photo: Path) -> list[list[Path]]:
        """The places of sidecars: `photo.xmp` in any case, then `photo.jpg.xmp` in any case.

        The exact name stands first, also if there is no such file. A `photo.xmp` of another file,
        such as a raw one (`photoshop:SidecarForExtension`), is left out.
        """
        names = self.names(photo.parent)
        is_alone = len(names.get(_folded(photo.name), ())) < 2  # Else case tells photos apart.
        places = []
        for exact in (photo.with_suffix(".xmp"), photo.with_name(f"{photo.name}.xmp")):
            alike = map(exact.with_name, names.get(_folded(exact.name), ()))
            found = [path for path in alike if is_alone or path.stem == exact.stem]
            places.append([*dict.fromkeys([exact, *found])])
        return [[path for path in places[0] if not _is_of_other(path, photo)], places[1]]

    def sidecar(self, photo: Path, program: Program) -> Path:
        """The sidecar to write.

        Lightroom reads `photo.xmp`, the name in Adobe's XMP Specification Part 3, which is written
        unless there is a `photo.jpg.xmp` alone, or it is a raw file's, such as of the `photo.nef`
        beside it; digiKam and darktable read `photo.jpg.xmp`.
        """
        short, long = self.sidecars(photo)
        is_of_other = self.raw_suffix(photo) not in ("", photo.suffix.lower())
        places = long if program != "lightroom" or is_of_other else [*short, *long]
        names = self.names(photo.parent)
        there = (path for path in places if path.name in names.get(_folded(path.name), ()))
        return next(there, places[0])

    def text(self, photo: Path) -> Path:
        """The text of a photo."""
        exact = photo.with_suffix(".txt")
        alike = self.names(photo.parent).get(_folded(exact.name), ())
        return exact if exact.name in alike or len(alike) != 1 else exact.with_name(alike[0])

    def raw_suffix(self, photo: Path) -> str:
        """The suffix of a raw file of this name, whose is `photo.xmp`; "" without one."""
        names = self.names(photo.parent)
        suffixes = sorted(files.RAW_SUFFIXES)
        return next((each for each in suffixes if _folded(photo.stem + each) in names), "")

    def has_namesake(self, photo: Path) -> bool:
        """Whether a file has the photo's name but for the ending, and is no sidecar or text."""
        return any(name != photo.name for name in self._stems(photo.parent).get(photo.stem, ()))

    def _list_stems(self, folder: Path) -> Mapping[str, Sequence[str]]:
        stems: dict[str, list[str]] = {}
        for name in chain.from_iterable(self.names(folder).values()):
            stem, ending = os.path.splitext(name)
            if ending.lower() not in ENDINGS:
                stems.setdefault(stem, []).append(name)
        return stems


def _names(folder: Path) -> Mapping[str, Sequence[str]]:
    """The names in a folder by the form that file systems which ignore case compare."""
    names: dict[str, tuple[str, ...]] = {}
    with suppress(OSError, ValueError):
        for name in sorted(os.listdir(folder)):
            form = _folded(name)
            names[form] = (*names.get(form, ()), name)
    return names


def _folded(name: str) -> str:
    """A name as file systems that ignore case compare it."""
    return unicodedata.normalize("NFC", name).lower()


def _is_of_other(sidecar: Path, photo: Path) -> bool:
    """Whether a sidecar says that it is of a file with another suffix, such as a raw file."""
    with suppress(OSError, ValueError):
        if found := _SIDECAR_FOR.search(sidecar.read_bytes().replace(b"\0", b"")):
            return _type_of(found[1].decode("latin-1")) != _type_of(photo.suffix[1:])
    return False


def _type_of(suffix: str) -> str:
    return mimetypes.guess_type(f"a.{suffix}")[0] or suffix.lower()
