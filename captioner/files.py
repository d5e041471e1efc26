"""Reads, checks, locks and atomically writes files and folders."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from captioner.errors import UserError

_TEMPORARY = ".captioner-"  # Temporary files and folders begin like that.


@contextlib.contextmanager
def refuse_os_errors(problem: str) -> Iterator[None]:
    """Raise `UserError` with the problem, "cannot write x", and the reason of an `OSError`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{problem}: {error.strerror or error}") from None


def temporary_path(folder: Path, suffix: str = "") -> Path:
    """A new path in a folder, which `remove_temporaries` removes."""
    return folder / f"{_TEMPORARY}{uuid.uuid4().hex}{suffix}"


def remove_temporaries(folder: Path, age: float = 3600.0, suffix: str = "") -> None:
    """Remove what killed processes left in a folder, unless changed less than `age` seconds ago."""
    for path in sorted(folder.glob(f"{_TEMPORARY}*{suffix}")):
        with contextlib.suppress(OSError):  # They harm nobody.
            if time.time() - path.stat().st_mtime < age:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path to write to, which replaces `path` on a clean exit.

    Both are in one folder, made if missing, and have one suffix. The file is flushed to disk before
    it is renamed, and the folder after: a power loss leaves the old file or the new. Permissions
    and links stay; a link's target is replaced. Pipes and devices are written to.
    """
    with refuse_os_errors(f"cannot write {path}"):
        target = Path(os.path.realpath(path))
        is_replaced = target.is_file() or not target.exists()
        folder = target.parent if is_replaced else Path(tempfile.gettempdir())
        folder.mkdir(parents=True, exist_ok=True)
        temporary = temporary_path(folder, target.suffix)
        temporary.touch(exist_ok=False)
        try:
            yield temporary
            if is_replaced:
                with temporary.open("rb+") as file:
                    if target.exists():
                        shutil.copymode(target, temporary)  # Once open: it may forbid writing.
                    os.fsync(file.fileno())
                os.replace(temporary, target)
                flush_folder(folder)
            else:
                with temporary.open("rb") as file, target.open("wb") as stream:
                    shutil.copyfileobj(file, stream)
        finally:
            temporary.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Flush a folder's names to disk, where the system can open folders."""
    with contextlib.suppress(OSError):  # Windows cannot.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_lock(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """`lock` a file, but no pipe or device, by an empty hidden file beside it."""
    target = Path(real_path(path))
    if target.exists() and not target.is_file():
        return contextlib.nullcontext()
    return lock(target.with_name(f".{target.name}.lock"), str(path), stays=False)


@contextlib.contextmanager
def lock(path: Path, name: str, wait: bool = False, stays: bool = True) -> Iterator[None]:
    """Lock a file for this process while the block runs; makes it, and its folder, if missing.

    The lock ends with the process. name: what it stands for, for messages. wait: for another
    process, instead of a `UserError`. stays: whether the file is there afterwards.
    """
    from filelock import FileLock, Timeout  # Imported here: few commands lock anything.

    with refuse_os_errors(f"cannot lock {name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        holder = FileLock(path)
        try:
            holder.acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise UserError(f"{name} is in use by another process") from None
    try:
        yield
    finally:
        if not stays:
            with contextlib.suppress(OSError):  # Windows removes no open file.
                path.unlink()
        holder.release()


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike[str], content: str, encoding: str = "utf-8") -> None:
    """Write `content` atomically; a surrogate, of a file name, as \\udcXX, which JSON restores."""
    write_bytes(path, content.encode(encoding, "backslashreplace"))


def write_json(path: str | os.PathLike[str], value: Any, indent: int | None = 2) -> None:
    """Write `value` to `path` as JSON, atomically."""
    write_text(path, json_text(value, indent))


def json_text(value: Any, indent: int | None = 2) -> str:
    """`value` as JSON, with a newline at the end."""
    return json.dumps(value, indent=indent, ensure_ascii=False) + "\n"


def read_text(path: str | os.PathLike[str], what: str = "file") -> str:
    """Read a UTF-8 text file. what: the file's role, for messages."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{what} {path} does not exist") from None
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (byte {error.start}): save it as UTF-8"
        raise UserError(f"{what} {path} {problem}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {what} {path}: {reason}") from None


def read_json(path: str | os.PathLike[str], what: str = "file") -> Any:
    """Read a JSON file."""
    try:
        return json.loads(read_text(path, what))
    except (ValueError, RecursionError) as error:  # Also a number of 5,000 digits.
        raise UserError(f"{what} {path} is not valid JSON ({error})") from None


def check_writable(what: str, folder: str | os.PathLike[str]) -> None:
    """Raise `UserError`, which names `what`, unless a folder, also a new one, takes files."""
    existing = Path(folder)
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"{what} needs {existing} to be a folder, but it is a file")
    with refuse_os_errors(f"{what} cannot write into folder {existing}"):
        # Some folders, such as /proc, take no files despite their permissions.
        tempfile.TemporaryFile(dir=existing).close()


def write_each(
    files: Iterable[tuple[str, Path]], write: Callable[[str, Path], None]
) -> tuple[dict[str, str], list[str]]:
    """Write files; returns the paths by option, and the reasons of those that failed."""
    written, problems = {}, []
    for option, path in files:
        try:
            write(option, path)
            written[option] = os.fspath(path)
        except UserError as error:
            problems.append(str(error))
    return written, problems


def real_path(path: str | os.PathLike[str]) -> str:
    """The path with links resolved."""
    try:
        return os.path.normcase(os.path.realpath(path))
    except ValueError:  # A name that no file can have.
        return os.fspath(path)
