"""Reads, checks, locks and atomically writes files and folders."""

import codecs
import contextlib
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import unicodedata
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from captioner.errors import UserError

_TEMPORARY = ".captioner-"  # Temporary files and folders begin like that.
_OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # As shells name <(command).

StrPath: TypeAlias = "str | os.PathLike[str]"
Json: TypeAlias = Any
"""A value of JSON, which the schema or the reader of its file checks."""
JsonObject: TypeAlias = dict[str, Json]

RAW_SUFFIXES = frozenset((".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"))
"""Of raw files of cameras, in lower case; nothing is written into these."""

LARGEST_TEXT = 2**31  # Bytes; COCO's largest file has a quarter.
LARGEST_CONFIG = 2**27

_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # Before UTF-16, whose mark begins alike.
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""By byte order mark."""

UNMARKED_WIDE = re.compile(rb"(?:[ -~]\0+){2}|(?:\0+[ -~]){2}")
"""How text in UTF-16 and UTF-32 begins, and no photo."""


@contextlib.contextmanager
def refuse_os_errors(problem: str) -> Iterator[None]:
    """Raise `UserError` with the problem, "cannot write x", and the reason of an `OSError`.

    Also for a name with a NUL, which Python refuses with a `ValueError`.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "embedded null" not in str(error):
            raise
        raise UserError(f"{problem}: {getattr(error, 'strerror', None) or error}") from None


def temporary_path(folder: Path, suffix: str = "") -> Path:
    """A new path in a folder, which `remove_temporaries` removes."""
    return folder / f"{_TEMPORARY}{uuid.uuid4().hex}{suffix}"


def remove_temporaries(folder: Path, age: float = 3600.0, suffix: str = "") -> None:
    """Remove what killed processes left in a folder more than `age` seconds ago."""
    for path in sorted(folder.glob(f"{_TEMPORARY}*{suffix}")):
        with contextlib.suppress(OSError):  # A temporary that stays harms nothing.
            if time.time() - path.stat().st_mtime >= age:
                remove = shutil.rmtree if path.is_dir() else os.unlink
                remove(path)


def remove_temporaries_of(path: StrPath) -> None:
    """Remove what killed processes left of a file that this one has locked."""
    target = Path(os.path.realpath(path))
    remove_temporaries(target.parent, age=-math.inf, suffix=_ending(target))


def _ending(target: Path) -> str:
    """The end of the names of a file's temporaries."""
    return f"-{zlib.crc32(os.fsencode(target.name)):08x}{target.suffix}"


def remove_leftovers(paths: Iterable[Path]) -> None:
    """Remove what killed processes left of files like these, each written in under a second."""
    for folder, suffix in {(path.parent, path.suffix) for path in paths}:
        remove_temporaries(folder, age=60, suffix=suffix)


@contextlib.contextmanager
def atomic_path(path: StrPath) -> Iterator[Path]:
    """Yields a temporary path to write to, which replaces `path` on a clean exit.

    Both are in one folder, made if missing, and have one suffix. The file is flushed to disk before
    it is renamed, and the folder after: a power loss leaves the old file or the new. Permissions
    and links stay; a link's target is replaced. Pipes and devices are written to.
    """
    with refuse_os_errors(f"cannot write {path}"):
        target = Path(os.path.realpath(path))
        is_replaced = os.path.isfile(target) or not os.path.exists(target)
        folder = target.parent if is_replaced else Path(tempfile.gettempdir())
        folder.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(folder, _ending(target))
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            if is_replaced:
                replace(temporary, target)
            else:
                target.write_bytes(temporary.read_bytes())
        finally:
            temporary.unlink(missing_ok=True)


def replace(temporary: Path, target: Path) -> None:
    """Flush a file to disk and rename it, to a file whose mode it gets; then flush the folder."""
    with temporary.open("rb+") as file:
        if target.exists():
            shutil.copymode(target, temporary)  # Once open: it may forbid writing.
        os.fsync(file.fileno())
    os.replace(temporary, target)
    flush_folder(target.parent)


def flush_folder(folder: Path) -> None:
    """Flush a folder's names to disk, where the system can open folders."""
    with contextlib.suppress(OSError):  # Windows cannot.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_lock(path: StrPath) -> contextlib.AbstractContextManager[None]:
    """`lock` a file, but no pipe or device, by an empty hidden file beside it."""
    target = Path(real_path(path))
    if os.path.exists(target) and not os.path.isfile(target):
        return contextlib.nullcontext()
    return lock(target.with_name(f".{target.name}.lock"), str(path), stays=False)


@contextlib.contextmanager
def lock(path: Path, name: str, wait: bool = False, stays: bool = True) -> Iterator[None]:
    """Lock a file for this process while the block runs; makes it, and its folder, if missing.

    The lock ends with the process. name: what it stands for, for messages. wait: for another
    process, instead of a `UserError`. stays: whether the file is there afterwards.

    Where the file system has no locks, the file PATH.held is one while it exists: it names its
    process and machine. After that process has ended, others on its machine take it over.
    """
    # Imported here: few commands lock anything.
    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

    advice = ""
    with refuse_os_errors(f"cannot write {name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()  # The library takes a file that cannot be made for a locked one.
        holder: BaseFileLock = FileLock(path, timeout=0)
        if not _has_locks(path.parent):
            marker = path.with_name(f"{path.name}.held")
            holder = SoftFileLock(marker, timeout=1)  # What an ended process left goes first.
            advice = f"; if not, remove {marker}"
            held = f"is locked by the file {marker}: its file system has no locks"
            sys.stderr.write(f"captioner: {name} {held}\n")
        try:
            holder.acquire(-1 if wait else holder.timeout)
        except Timeout:
            raise UserError(f"{name} is in use by another process{advice}") from None
    try:
        yield
    finally:
        if not stays:
            with contextlib.suppress(OSError):  # Windows removes no open file.
                path.unlink()
        holder.release()


def _has_locks(folder: Path) -> bool:
    """Whether the file system of a folder locks files; Lustre, NFS and FUSE may not."""
    with contextlib.suppress(ImportError), tempfile.TemporaryFile(dir=folder) as file:
        import fcntl  # Not on Windows, where all do.

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Nobody else knows the file.
        except OSError:
            return False
    return True


def write_bytes(path: StrPath, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: StrPath, content: str, encoding: str = "utf-8") -> None:
    """Write `content` atomically; a surrogate, of a file name, as \\udcXX, which JSON restores."""
    write_bytes(path, content.encode(encoding, "backslashreplace"))


def write_json(path: StrPath, value: object, indent: int | None = 2) -> None:
    """Write `value` to `path` as JSON, atomically."""
    write_text(path, json_text(value, indent))


def json_text(value: object, indent: int | None = 2) -> str:
    """`value` as JSON, with a newline at the end."""
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


@contextlib.contextmanager
def opened_file(path: StrPath, what: str = "file") -> Iterator[BinaryIO]:
    """Yields a regular file, or an open pipe by its name; devices may have no end.

    what: its role, for messages.
    """
    with refuse_os_errors(f"cannot read {what} {path}"):
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, ValueError):  # Of a name that no file can have.
            raise UserError(f"{what} {path} does not exist") from None
        is_pipe = stat.S_ISFIFO(mode) and os.fspath(path).startswith(_OPEN_FILES)
        if not is_pipe and not stat.S_ISREG(mode):
            kind = "folder" if stat.S_ISDIR(mode) else "pipe or a device"
            raise UserError(f"cannot read {what} {path}: it is a {kind}, not a file")
        with open(path, "rb") as file:
            yield file


def read_bytes(path: StrPath, what: str = "file", largest: int = LARGEST_TEXT) -> bytes:
    """Read a file; one of more than `largest` bytes is refused."""
    with opened_file(path, what) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(largest + 1 if size == 0 else size) if size <= largest else b""
    if max(size, len(content)) > largest:
        raise UserError(f"{what} {path} is too large: the limit is {largest:,} bytes")
    return content


def decode_text(content: bytes, name: str) -> str:
    """Text of people, in UTF-8 or as its byte order mark says. name: for messages."""
    marks = (encoding for mark, encoding in _ENCODINGS.items() if content.startswith(mark))
    encoding = next(marks, "utf-8")
    if encoding == "utf-8" and b"\0" in content[:4096]:
        raise UserError(f"{name} is not UTF-8 text (it has NUL bytes): save it as UTF-8")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        where = f"line {line}, byte {error.start}"
        advice = f"is not {encoding[:6].upper().rstrip('-')} text ({where}): save it as UTF-8"
        raise UserError(f"{name} {advice}") from None


def as_utf8(content: bytes, name: str) -> bytes:
    """Content without its byte order mark, and in UTF-8 if that is of UTF-16 or UTF-32."""
    is_marked = content.startswith(tuple(_ENCODINGS))
    return decode_text(content, name).encode() if is_marked else content


def read_text(path: StrPath, what: str = "file", largest: int = LARGEST_TEXT) -> str:
    """Read a text file, see `decode_text`; lines end in LF. what: its role, for messages."""
    text = decode_text(read_bytes(path, what, largest), f"{what} {path}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: StrPath, what: str = "file", largest: int = LARGEST_TEXT) -> Json:
    """Read a JSON file."""
    return parse_json(read_text(path, what, largest), f"{what} {path}")


def parse_json(text: str | bytes, name: str) -> Json:
    """The value of a JSON text; a key that is given twice is refused. name: for messages."""
    try:
        return json.loads(text, object_pairs_hook=_with_each_key_once)
    except (ValueError, RecursionError) as error:  # Also a number of 5,000 digits.
        raise UserError(f"{name} is not valid JSON ({error})") from None


def _with_each_key_once(pairs: list[tuple[str, Json]]) -> JsonObject:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise ValueError(f"{keys.most_common(1)[0][0]!r} is given twice")
    return mapping


def composed(name: str) -> str:
    """A name as tables have it; macOS writes an accent as a character after its letter (NFD)."""
    return unicodedata.normalize("NFC", name)


@lru_cache(maxsize=4096)
def _folder_names(folder: str, changed: int) -> tuple[dict[str, str], dict[str, str]]:
    """The names in a folder by their composed form, and by it in lower case if only one has it.

    changed: when the folder was, in nanoseconds.
    """
    by_name = {composed(name): name for name in os.listdir(folder)}
    counts = Counter(map(str.casefold, by_name))
    alone = (form for form in by_name if counts[form.casefold()] == 1)
    return by_name, {form.casefold(): by_name[form] for form in alone}


def existing_path(path: Path) -> Path:
    """The path, or that of the only file whose name differs by its spelling alone.

    See `composed`; to Windows and macOS 0.jpg is 0.JPG, and Windows writes backslashes.
    """
    if os.path.lexists(path) or path == path.parent:
        return path
    if "\\" in path.as_posix():
        return existing_path(Path(path.as_posix().replace("\\", "/")))
    folder, name = existing_path(path.parent), path.name
    with contextlib.suppress(OSError, ValueError):
        changed = os.stat(folder).st_mtime_ns
        by_name, by_lower = _folder_names(os.path.abspath(folder), changed)
        form = composed(name)
        return folder / (by_name.get(form) or by_lower.get(form.casefold(), name))
    return path


def check_writable(what: str, folder: str | os.PathLike[str]) -> None:
    """Raise `UserError`, which names `what`, unless a folder, also a new one, takes files."""
    existing = Path(folder)
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not os.path.isdir(existing):
        raise UserError(f"{what} needs {existing} to be a folder, but it is a file")
    with refuse_os_errors(f"{what} cannot write into folder {existing}"):
        # Some folders, such as /proc, take no files despite their permissions.
        tempfile.TemporaryFile(dir=existing).close()


def check_files(
    paths: Sequence[tuple[str, str]], overwrite: bool, folders: Sequence[str] = ()
) -> None:
    """Raise `UserError` for an output that is there, unless `overwrite`, or cannot be written.

    paths: with the options that name them. folders: the options that name folders. Empty
    files and folders, devices and pipes are written to.
    """
    owners: dict[str, str] = {}
    for option, path in paths:
        if not path:
            raise UserError(f"{option} is empty; it should name a file")
        if owners.setdefault(real_path(path), option) != option:
            raise UserError(f"{path} is for {owners[real_path(path)]} and {option}; name two files")
        is_there = os.path.isfile(path) and os.path.getsize(path) > 0
        if option in folders and os.path.isfile(path):
            raise UserError(f"{option} {path} is a file, not a folder")
        elif option in folders:
            is_there = os.path.isdir(path) and bool(os.listdir(path))
        elif os.path.isdir(path):
            raise UserError(f"{option} {path} is a folder, not a file")
        if is_there and not overwrite:
            raise UserError(f"{option} {path} exists; --overwrite replaces it")
    for folder, option in {os.path.dirname(path): option for option, path in paths}.items():
        check_writable(option, folder)


def real_path(path: StrPath) -> str:
    """The path with links resolved."""
    with contextlib.suppress(ValueError):  # A name that no file can have.
        return os.path.normcase(os.path.realpath(path))
    return os.fspath(path)
