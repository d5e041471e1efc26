"""The names of sidecars and texts beside photos."""

import mimetypes
import os
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from captioner import files
from captioner.library.words import Program

_SIDECAR_FOR = re.compile(rb"""SidecarForExtension(?:\s*=\s*["']|>)\s*(\w+)""")
ENDINGS = (".xmp", ".txt")
"""Of the files beside photos."""


class Beside:
    """Where the files beside photos are. It keeps the names of the folders that it saw last.

    These are not read again: a new sidecar may change where another photo's goes.
    """

    def __init__(self) -> None:
        self._names = lru_cache(16)(_names)

    def sidecars(self, photo: Path) -> list[list[Path]]:
        """The places of sidecars: `photo.xmp` in any case, then `photo.jpg.xmp` in any case.

        The exact name stands first, also if there is no such file. A `photo.xmp` of another file,
        such as a raw one (`photoshop:SidecarForExtension`), is left out.
        """
        is_alone = len(self._alike(photo)) < 2  # Else case tells photos apart.
        short = self._spellings(photo.with_suffix(".xmp"), is_alone)
        long = self._spellings(photo.with_name(f"{photo.name}.xmp"), is_alone)
        return [[path for path in short if not _is_of_other(path, photo)], long]

    def sidecar(self, photo: Path, program: Program) -> Path:
        """The sidecar to write.

        Lightroom reads `photo.xmp`, the name in Adobe's XMP Specification Part 3, which is written
        unless there is a `photo.jpg.xmp` alone, or it is a raw file's, such as of the `photo.nef`
        beside it; digiKam and darktable read `photo.jpg.xmp`.
        """
        short, long = self.sidecars(photo)
        is_of_other = self.raw_suffix(photo) not in ("", photo.suffix.lower())
        return self._first(long if program != "lightroom" or is_of_other else [*short, *long])

    def text(self, photo: Path) -> Path:
        """The text of a photo; its ending may be in any case."""
        return self._first(self._spellings(photo.with_suffix(".txt"), in_any_case=False))

    def raw_suffix(self, photo: Path) -> str:
        """The suffix of a raw file of this name, whose is `photo.xmp`; "" without one."""
        suffixes = {path.suffix.lower() for path in self.namesakes(photo)}
        return min(suffixes & files.RAW_SUFFIXES, default="")

    def namesakes(self, photo: Path) -> list[Path]:
        """The photos with the name of this one but for the ending, and it."""
        return [path for path in self._alike(photo, f"{photo.stem}/") if is_photo(path.suffix)]

    def others(self, photo: Path) -> list[Path]:
        """The other photos with its name."""
        return [path for path in self.namesakes(photo) if path.name != photo.name]

    def _spellings(self, exact: Path, in_any_case: bool) -> list[Path]:
        """The exact name, then those that there are in another case, also of the stem."""
        alike = self._alike(exact)
        found = [path for path in alike if in_any_case or _nfc(path.stem) == _nfc(exact.stem)]
        return [*dict.fromkeys([exact, *found])]

    def _first(self, places: list[Path]) -> Path:
        """The first that there is, or else the first."""
        return next((path for path in places if path in self._alike(path)), places[0])

    def _alike(self, path: Path, key: str = "") -> list[Path]:
        names = self._names(path.parent).get(_nfc(key or path.name).lower(), "")
        return [path.with_name(name) for name in names.split("/") if name]


def _names(folder: Path) -> Mapping[str, str]:
    """The names in a folder, joined by /, by the form that file systems which ignore case compare.

    Also by their stems, with a / behind.
    """
    names: dict[str, str] = {}
    with suppress(OSError, ValueError):
        for name in sorted(os.listdir(folder)):
            whole = _nfc(name).lower()
            for form in (whole, f"{os.path.splitext(whole)[0]}/"):
                names[form] = f"{names[form]}/{name}" if form in names else name
    return names


def _nfc(name: str) -> str:
    """A name with composed accents, which macOS writes apart."""
    return unicodedata.normalize("NFC", name)


@cache
def is_photo(suffix: str) -> bool:
    """Whether files with a suffix are photos."""
    kind = mimetypes.guess_type(f"a{suffix}", strict=False)[0] or ""  # WebP is no standard.
    return kind.startswith("image/") or suffix.lower() in files.RAW_SUFFIXES


def _is_of_other(sidecar: Path, photo: Path) -> bool:
    """Whether a sidecar says that it is of a file with another suffix, such as a raw file."""
    with suppress(OSError, ValueError):
        if found := _SIDECAR_FOR.search(sidecar.read_bytes().replace(b"\0", b"")):
            suffixes = [found[1].decode("latin-1").lower(), photo.suffix[1:].lower()]
            types = {mimetypes.guess_type(f"a.{suffix}")[0] or suffix for suffix in suffixes}
            return len(types) > 1
    return False
