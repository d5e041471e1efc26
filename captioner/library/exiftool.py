"""A process of exiftool, which reads and writes one photo after the other."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from ctypes import CDLL
from functools import partial
from pathlib import Path
from threading import Lock, Timer

from captioner import files
from captioner.errors import UserError

TEMPORARY = ".embedded"
"""Suffix of temporary files beside photos; by that of a WebP, exiftool does not know its format."""

_EXIF = ("EXIF:ImageDescription", "EXIF:XPComment", "EXIF:UserComment")
TEXTS = (*_EXIF, "PNG:Description", "Comment")
"""Places of descriptions beside XMP and IPTC; the first counts most."""
_TAGS = (*TEXTS, "PNG:Description*", "EXIF:Make", "XMP", "IPTC:all", "FileType", "MIMEType")

_SECONDS = 60  # For a photo; one of a gigabyte has 17 minutes more.
_BYTES_A_SECOND = 1e6
_READY = "{ready}\n"  # What exiftool prints after each photo.


class Exiftool:
    """Starts a process when there is none, or the last one died or was ended; threads share it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()
        self.is_there = shutil.which("exiftool") is not None

    def check(self, what: str = "--embed") -> None:
        """Raise `UserError` unless exiftool is there."""
        if not self.is_there:
            where = "https://exiftool.org or, on Debian, apt install libimage-exiftool-perl"
            raise UserError(f"{what} needs exiftool; see {where}")

    def read(self, photo: Path) -> dict[str, list[str]]:
        """The values of `_TAGS` in a photo, by group and name. Raises `UserError` without any."""
        self.check(f"reading the words in {photo}")
        tags, problem = [f"-{tag}" for tag in _TAGS], f"cannot read {photo}"
        answer = self._answer(photo, problem, "-json", "-G0:4", "-a", "-b", *tags)
        try:
            (found,) = json.loads(answer, parse_int=str, parse_float=str)
        except ValueError:
            raise UserError(f"{problem}: {answer or 'exiftool says nothing'}") from None
        values: dict[str, list[str]] = {}
        for name, value in found.items():  # Such as "EXIF:Copy1:UserComment".
            key = re.sub(r":Copy\d+|(?<=PNG:Description)-.*|.*:(?=Comment$)", "", name)
            texts = map(str, value if isinstance(value, list) else [value])
            values.setdefault(key, []).extend(texts)
        if not values.get("File:MIMEType", [""])[0].startswith("image/"):
            raise UserError(f"{photo} is not a photo that can be read")
        return values

    def write(self, photo: Path, block: bytes | None, iptc: list[str], is_dry: bool) -> None:
        """Write a packet of XMP, None to leave it, b"" to remove it, and changes of IPTC.

        All else stays as it is, pixels, date and attributes as well. is_dry: do not replace it.
        """
        if photo.suffix.lower() in files.RAW_SUFFIXES:
            raise UserError(f"{photo} is a raw file, into which nothing is written: use --xmp")
        target, problem = Path(os.path.realpath(photo)), f"cannot embed the caption in {photo}"
        written = files.temporary_path(target.parent, TEMPORARY)
        # exiftool reads %f in a name as a code, and %d as the photo's folder.
        options = ["-E", "-o", f"%d{written.name}"]
        values = [*iptc]
        if block is not None:
            values.append(f"-XMP={block.decode()}" if block else "-XMP:all=")
        # With -E they may have entities; #[CSTR] would make $ to \$.
        options += [re.sub("[&\r\n]|(?<==) ", _entity, value) for value in values]
        with files.refuse_os_errors(problem):
            status = target.stat()
            if status.st_nlink > 1:
                raise UserError(f"{photo} has several hard links: give it one, or use --xmp")
            try:
                answer = self._answer(target, problem, *options)
                if answer or not written.is_file():
                    reason = answer.removeprefix("Error: ").removesuffix(f" - {target}")
                    raise UserError(f"{problem}: {reason or 'exiftool wrote no photo'}")
                if not is_dry:
                    shutil.copystat(target, written)
                    with suppress(AttributeError, PermissionError):  # Windows; another's photo.
                        os.chown(written, status.st_uid, status.st_gid)
                    written.chmod(0o600)  # The mode may forbid writing; `replace` copies it.
                    files.replace(written, target)
            finally:
                written.unlink(missing_ok=True)

    def close(self) -> None:
        """End the process."""
        if self._process:
            _end(self._process)

    def _answer(self, photo: Path, problem: str, *options: str) -> str:
        """What exiftool prints about a photo, without warnings.

        Raises `UserError` with the problem if it dies, or is ended as it takes too long.
        """
        name = os.path.abspath(photo)  # A line that begins with # or a space has another meaning.
        if "\n" in name:
            name = "#[CSTR]" + name.replace("\\", "\\\\").replace("\n", "\\n")
        command = ["-q", "-q", *options, name, "-echo3", _READY.strip()]
        seconds, lines = _SECONDS + photo.stat().st_size / _BYTES_A_SECOND, list[str]()
        with self._lock:
            exiftool, self._process = self._process or _started(), None
            start = time.monotonic()
            limit = Timer(seconds, exiftool.kill)
            limit.daemon = True  # An interrupted run does not wait for it.
            limit.start()
            try:
                with suppress(OSError):  # One that died prints nothing either.
                    print(*command, "-execute", sep="\n", file=exiftool.stdin, flush=True)
                for line in exiftool.stdout or ():
                    if line == _READY:
                        self._process = exiftool
                        return "".join(lines).strip()
                    lines.append(line)
            finally:
                limit.cancel()
                if not self._process:  # Its answer would be taken for that about the next photo.
                    _end(exiftool)
        is_late = time.monotonic() - start > seconds
        reason = f"took more than {seconds:.0f} seconds" if is_late else "died"
        raise UserError(f"{problem}: exiftool {reason}")


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def _started() -> "subprocess.Popen[str]":
    # It ends with this process (PR_SET_PDEATHSIG): at the end of its input it waits for more.
    is_linux = sys.platform == "linux"
    return subprocess.Popen(
        ["exiftool", "-stay_open", "True", "-@", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="surrogateescape",
        start_new_session=True,  # Ctrl-C is for captioner.
        preexec_fn=partial(CDLL(None).prctl, 1, signal.SIGKILL) if is_linux else None,
    )


def _end(process: "subprocess.Popen[str]") -> None:
    with suppress(OSError), process:  # It may hold a command that nobody reads.
        process.kill()
