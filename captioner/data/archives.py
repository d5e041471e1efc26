"""Data sets as they are handed out: zip archives, unpacked where their folders are missing."""

from __future__ import annotations

import lzma
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

from captioner.errors import UserError
from captioner.files import folder_lock
from captioner.progress import progress_bar

_LEFT_OUT = {"__MACOSX", ".DS_Store"}

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    UnicodeDecodeError,
    NotImplementedError,
    EOFError,
)
"""What `zipfile` and those it unpacks with raise for an archive that cannot be read."""


def unpack_missing(archives: Mapping[str, str | os.PathLike[str]]) -> None:
    """Unpack archives whose folders are missing.

    archives: folders, and the zip file that each is unpacked from. Where all of an archive is in
        one folder, what is in it is unpacked. What macOS adds to archives is left out.

    A folder is there whole or not at all: it is unpacked under another name, and renamed. Where
    neither folder nor archive is there, nothing is done, and whoever reads the data says what it
    misses. Raises `UserError` for a damaged archive, for one with a path that leads out of the
    folder, and for a folder that cannot be written.
    """
    for name, archive in archives.items():
        folder = Path(name)
        if folder.exists() or not Path(archive).exists():
            continue
        with folder_lock(folder.parent, "data", wait=True):
            if not folder.exists():  # Another process may have waited for the lock less long.
                _unpack(Path(archive), folder)


def _unpack(archive: Path, folder: Path) -> None:
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise UserError(f"cannot unpack {archive} to {folder}: {error.strerror or error}") from None
    try:
        with zipfile.ZipFile(archive) as source:
            members = _members(source, archive)
            progress = progress_bar(f"unpacking {archive.name}", len(members), "files")
            for member, path in members.items():
                target = temporary / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with source.open(member) as content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
                progress.update()
            progress.close()
        temporary.chmod(0o755)
        temporary.rename(folder)
    except _DAMAGED as error:
        raise UserError(f"archive {archive} cannot be unpacked ({error})") from None
    except RuntimeError:  # What `zipfile` raises for an encrypted one.
        raise UserError(f"archive {archive} cannot be unpacked: it wants a password") from None
    except OSError as error:
        if folder.exists():  # Another process was first, on a disk without locks.
            return
        raise UserError(f"cannot unpack {archive} to {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _members(source: zipfile.ZipFile, archive: Path) -> dict[zipfile.ZipInfo, PurePosixPath]:
    """The files of an archive, and where each goes inside the folder."""
    found: dict[zipfile.ZipInfo, PurePosixPath] = {}
    for member in source.infolist():
        path = PurePosixPath(member.filename)
        if member.is_dir() or _LEFT_OUT & set(path.parts):
            continue
        elsewhere = path.is_absolute() or PureWindowsPath(member.filename).drive != ""
        if elsewhere or ".." in path.parts or not path.parts:
            raise UserError(f"archive {archive} holds {member.filename!r}, which leads out of it")
        found[member] = path
    if not found:
        raise UserError(f"archive {archive} holds no files")
    tops = {path.parts[0] for path in found.values()}
    if len(tops) == 1 and all(len(path.parts) > 1 for path in found.values()):
        return {member: PurePosixPath(*path.parts[1:]) for member, path in found.items()}
    return found
