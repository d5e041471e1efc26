"""Unpacks the zip archives of data sets."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from captioner.errors import UserError
from captioner.files import atomic_folder, folder_lock, refuse_os_errors, remove_temporaries
from captioner.progress import progress_bar

_OF_MACOS = re.compile(r"^__MACOSX/|(^|/)\.DS_Store$")

_TOP = ".top"
"""Name of an archive's single top folder while its files are moved up."""

_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    UnicodeDecodeError,
    EOFError,
    RuntimeError,  # It is encrypted, or compressed in an unknown way.
)
"""Raised by `zipfile` and its decompressors."""


def unpack_missing(archives: Mapping[str, str | os.PathLike[str]]) -> None:
    """Unpack archives whose folders are missing.

    archives: the zip file of each folder. A single top folder in the archive is stripped; the
        files that macOS adds are skipped.

    Unpacks to a temporary name, then renames: a folder is whole or absent. Ignores missing
    archives. Raises `UserError` for a damaged archive and a folder that cannot be written.
    """
    for name, archive in archives.items():
        folder = Path(name)
        if folder.exists() or not Path(archive).exists():
            continue
        with folder_lock(folder.parent, "data", wait=True):
            if not folder.exists():  # Another process may have held the lock before.
                _unpack(Path(archive), folder)


def _unpack(archive: Path, folder: Path) -> None:
    remove_temporaries(folder.parent)
    try:
        with (
            atomic_folder(folder) as temporary,
            refuse_os_errors(f"cannot unpack {archive}"),
            zipfile.ZipFile(archive) as source,
        ):
            members = [m for m in source.infolist() if not _OF_MACOS.search(m.filename)]
            if not members:
                raise UserError(f"archive {archive} holds no files")
            needed, free = sum(m.file_size for m in members), shutil.disk_usage(temporary).free
            if needed > free:
                raise UserError(
                    f"archive {archive} unpacks to {needed / 1e9:,.1f} GB; the disk of {folder} "
                    f"has {free / 1e9:,.1f} GB left"
                )
            with progress_bar(f"unpacking {archive.name}", len(members), "files") as progress:
                for member in members:
                    source.extract(member, temporary)  # Never outside of it, whatever its name is.
                    progress.update()
            found = list(temporary.iterdir())
            if len(found) == 1 and found[0].is_dir():
                top = found[0].rename(temporary / _TOP)
                for path in top.iterdir():
                    path.rename(temporary / path.name)
                top.rmdir()
    except _UNREADABLE as error:
        raise UserError(f"archive {archive} cannot be unpacked ({error})") from None
