"""Photos in shards: WebDataset's tars, and Parquet files as of Hugging Face's datasets.

A photo is read by its place in its file, so training may draw any; webdataset reads streams.
"""

import os
import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from captioner.errors import UserError, reason_of, refuse_errors
from captioner.vision.formats import check_file_size
from captioner.vision.images import (
    PHOTO_SUFFIXES,
    Report,
    ignore,
    is_leftover,
    photo_files,
)
from captioner.vision.parquet import (
    ROWS,
    CellReader,
    batches_of,
    is_plain,
    open_parquet,
    photo_column,
)

SHARD_SUFFIXES = (".tar", ".parquet")

_TEXT_SUFFIXES = (".txt", ".json")  # Of texts beside photos in a tar.
_NUMBERS = re.compile(r"\{([0-9]+)\.\.([0-9]+)\}")
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
        if not isinstance(cell, dict):  # With `bytes` and `path`.
            cell = {"bytes": cell}
        content, beside = cell["bytes"], Path(self.shard).parent / (cell.get("path") or "")
        if content is None and beside.is_file():  # A device may have no end.
            content = beside.read_bytes()
        if content is None:
            raise UserError(f"{self} has no photo")
        check_file_size(len(content), self.name)
        return bytes(content)


_CELLS = CellReader()


def source_status(source: object) -> os.stat_result | None:
    """The status of a photo's file or shard; None if it is gone, or the photo is in memory."""
    file = source.shard if isinstance(source, ShardMember) else source
    if isinstance(file, (str, os.PathLike)):
        with suppress(OSError, ValueError):  # A name may have a NUL.
            return os.stat(file)
    return None


def read_shards(
    pattern: str | os.PathLike[str], report: Report, note: Report = ignore
) -> ShardRecords:
    """The name and the record of each photo that a pattern names, in shards or as a file, in order.

    A record has the photo as `image`: a `ShardMember`, or a path where Parquet has one. Beside it
    are the `.txt` and the `.json` of the same name in a tar, and Parquet's columns of text.
    """
    for path in map(os.fspath, photo_files(numbered(os.fspath(pattern)), report, note)):
        if not path.lower().endswith(SHARD_SUFFIXES):
            yield path, {"image": path}
        elif not os.path.isfile(path):
            report(f"{path} does not exist, or is no file")
        elif path.lower().endswith(".tar"):
            yield from _of_tar(path, report)
        else:
            yield from _of_parquet(path, report)


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


def files_of_tar(path: str) -> Iterator[ShardMember]:
    """The files of a tar, neither links nor sparse files; raises `UserError` at a fault."""
    with refuse_errors(f"{path} cannot be read to its end"):
        for info in _members(path):
            if info.isreg() and not info.issparse():
                yield ShardMember(path, info.name, (info.offset_data, info.size))


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


def _of_parquet(path: str, report: Report) -> ShardRecords:
    with _reported(path, report), open_parquet(path) as file:
        column, is_path = photo_column(file.schema_arrow)
        texts = [field.name for field in file.schema_arrow if is_plain(field.type)]
        number = 0
        for group in range(file.num_row_groups):
            start = number
            batches_of(file, group, [column], ROWS)  # Refused once, not for each photo.
            for batch in batches_of(file, group, texts, 10 * ROWS):
                for record in batch.to_pylist():
                    cell = ShardMember(path, str(number), (group, number - start))
                    yield cell.name, record | {"image": record[column] if is_path else cell}
                    number += 1
        if not number:
            report(f"{path} holds no photos")
