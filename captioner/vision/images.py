"""Finds photos by files, folders and patterns, and loads them from untrusted files."""

import glob
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from PIL import Image

from captioner.errors import UserError, counted
from captioner.files import RAW_SUFFIXES, existing_path
from captioner.vision.decoding_process import shared_pool
from captioner.vision.formats import IS_ADDRESS as IS_ADDRESS
from captioner.vision.formats import MAXIMUM_PIXELS as MAXIMUM_PIXELS
from captioner.vision.formats import ImageSource as ImageSource
from captioner.vision.formats import begins_as_photo, load_here
from captioner.vision.formats import original_size as original_size
from captioner.vision.formats import photo_name as photo_name
from captioner.vision.raw import is_raw, raw_preview

_NAMES = json.loads(Path(__file__).with_name("file_names.json").read_text(encoding="utf-8"))
"""In lower case: suffixes of photos, of what is left out, and names of leftovers, as expressions.

Leftovers are what Synology, QNAP, macOS, Windows, Linux and photo managers leave in folders."""

PHOTO_SUFFIXES = frozenset(f".{suffix}" for suffix in _NAMES["photos"].split())
"""Lower-case suffixes of the images taken from a folder."""

_LEFTOVERS = re.compile("|".join(_NAMES["leftovers"]))
_LEFT_OUT = {f".{end}": kind for kind, ends in _NAMES["left out"].items() for end in ends.split()}

# file:///photos, file:/photos, and file:///C:/photos, without the path.
_FILE_ADDRESS = re.compile(r"file:(//(localhost)?(?=/))?(/(?=[a-z]:/)|(?=/))", re.IGNORECASE)

Report = Callable[[str], None]  # Takes a sentence about what cannot be read.


def load_image(
    source: ImageSource,
    maximum_pixels: int = MAXIMUM_PIXELS,
    *,
    name: str | None = None,
    sufficient_side: int | None = None,
    decoding_seconds: float | None = None,
) -> Image.Image:
    """Load a photo upright, in RGB, as a new image without metadata.

    Puts transparent images on white, scales greys of more than 8 bits and floats to 8 bits (see
    `_scaled`), and takes the first frame of an animation (the current one of a Pillow image), and
    the largest preview in a raw file.

    Large or slow photos are decoded in another process, limited in time and memory: `DecodingPool`.

    maximum_pixels: limit on width times height, checked before decoding. name: for errors.
    sufficient_side: divide width and height by the largest integer that leaves the shorter side at
        least so many pixels, or the longer at most 16 times as many; JPEG is decoded to fewer,
        which is much faster. See `original_size`.
    decoding_seconds: limit for another process; 20 by default.
    """
    shown_name = photo_name(source) if name is None else name
    if isinstance(source, (str, os.PathLike)) and is_raw(source) and os.path.isfile(source):
        source = raw_preview(os.fspath(source), shown_name)
    options = {"maximum_pixels": maximum_pixels, "sufficient_side": sufficient_side}
    return load_photo(source, shown_name, decoding_seconds, **options)


def load_photo(
    source: ImageSource, name: str, seconds: float | None = None, **options: Any
) -> Image.Image:
    """Load a photo, in another process if it is large or slow. options: of `load_here`."""

    def elsewhere(content: bytes) -> Image.Image:
        return shared_pool(os.getpid()).load(content, name, seconds, **options)

    return load_here(source, name, **options, elsewhere=elsewhere)


def refuse(sentence: str) -> None:
    """The `Report` that raises `UserError` for the first problem."""
    raise UserError(sentence)


def is_leftover(path: str | os.PathLike[str]) -> bool:
    """Whether systems or photo managers name their own files and folders so."""
    return any(map(_LEFTOVERS.fullmatch, re.split(r"[/\\]", os.fspath(path).lower())))


def ignore(sentence: str) -> None:
    """The `Report` that keeps silent."""


def local_path(path: str) -> str:
    """The path in a file manager's address, as file:///photos/a%20dog.jpg; any other as it is."""
    address = None if os.path.lexists(path) else _FILE_ADDRESS.match(path)
    return unquote(path[address.end() :], errors="surrogateescape") if address else path


def photo_files(
    paths: Iterable[str | os.PathLike[str]],
    report: Report = refuse,
    note: Report = ignore,
    taken: Set[str] = PHOTO_SUFFIXES | RAW_SUFFIXES,
) -> list[Path]:
    """The image files that files, folders and patterns (`**/*.jpg`) name, in order.

    A folder stands for the photos in and below it, sorted, without hidden ones: files with a suffix
    in `taken`, and those without one that begin as a photo does, but none of `_LEFTOVERS`.
    Other paths are returned, also those that do not exist. note: takes a sentence that counts the
    raw files, videos and other pictures left out. taken: lower-case suffixes; those of raw
    files count if exiftool is there.
    """
    images: list[Path] = []
    for path in paths:
        typed = os.fspath(path)
        matches = [typed]
        if not os.path.lexists(typed) and "\0" not in typed and glob.has_magic(typed):
            folder = typed  # The part that is there is no pattern, as in "Trip [2020]/*.jpg".
            while folder and not os.path.lexists(folder):
                folder = os.path.dirname(folder)
            pattern = glob.escape(folder) + typed[len(folder) :]
            found = sorted(glob.glob(pattern, recursive=True))
            matches = [match for match in found if is_leftover(typed) or not is_leftover(match)]
            if not matches:
                report(f"{typed} matches no file")
        for match in map(existing_path, map(Path, matches)):
            images += _photos_below(match, report, note, taken) if os.path.isdir(match) else [match]
    return images


def _photos_below(folder: Path, report: Report, note: Report, taken: Set[str]) -> list[Path]:
    def is_shown(name: str) -> bool:
        return not name.startswith(".") and not is_leftover(name)

    def unreadable(error: OSError) -> None:
        report(f"cannot read folder {error.filename}: {error.strerror or error}")

    images: list[Path] = []
    left_out: Counter[str] = Counter()
    readable = taken if shutil.which("exiftool") else taken - RAW_SUFFIXES
    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = filter(is_shown, folders)
        for inside in filter(Path.is_symlink, (Path(parent, name) for name in folders)):
            report(f"folder {inside} is a symbolic link and was not entered")
        for path in (Path(parent, name) for name in files if is_shown(name)):
            suffix = path.suffix.lower()
            if suffix in readable:
                images.append(path)
            elif suffix in _LEFT_OUT:
                left_out[_LEFT_OUT[suffix]] += 1
            elif not suffix and begins_as_photo(path):
                images.append(path)
    listed = ", ".join(counted(count, kind) for kind, count in sorted(left_out.items()))
    if readable != taken and left_out["raw file"]:
        listed += " (exiftool would read raw files)"
    if not images:
        report(f"folder {folder} holds no images{listed and f', but {listed}'}")
    elif listed:
        note(f"{folder}: left out: {listed}")
    return sorted(images)
