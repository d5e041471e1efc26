"""Runs exiftool, which reads and writes the words in photos; a process for each photo."""

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from captioner import files
from captioner.errors import UserError

_EXIF = ("EXIF:ImageDescription", "EXIF:XPComment", "EXIF:UserComment")
TEXTS = (*_EXIF, "PNG:Description", "Comment")
"""Places of descriptions beside XMP and IPTC; the first counts most."""
_TAGS = (*TEXTS, "PNG:Description*", "EXIF:Make", "XMP", "IPTC:all", "FileType", "MIMEType")

_SECONDS = 60  # For a photo; one of a gigabyte has 17 minutes more.
_BYTES_A_SECOND = 1e6


def has_exiftool() -> bool:
    """Whether exiftool is there."""
    return shutil.which("exiftool") is not None


def check_exiftool() -> None:
    """Raise `UserError` unless exiftool is there."""
    if not has_exiftool():
        where = "https://exiftool.org or, on Debian, apt install libimage-exiftool-perl"
        raise UserError(f"--embed needs exiftool; see {where}")


def read_tags(photo: Path) -> dict[str, list[str]]:
    """The values of `_TAGS` in a photo, by group and name. Raises `UserError` without any."""
    tags = [f"-{tag}" for tag in _TAGS]
    answer = _answer(photo, f"cannot read {photo}", "-json", "-G0:4", "-a", "-b", *tags)
    (found,) = json.loads(answer, parse_int=str, parse_float=str)
    values: dict[str, list[str]] = {}
    for name, value in found.items():  # Such as "EXIF:Copy1:UserComment".
        key = re.sub(r":Copy\d+|(?<=PNG:Description)-.*|.*:(?=Comment$)", "", name)
        texts = map(str, value if isinstance(value, list) else [value])
        values.setdefault(key, []).extend(texts)
    if not values.get("File:MIMEType", [""])[0].startswith("image/"):
        raise UserError(f"{photo} is not a photo that can be read")
    return values


def write_tags(photo: Path, block: bytes | None, iptc: list[str], is_dry: bool) -> None:
    """Write a packet of XMP, None to leave it, b"" to remove it, and changes of IPTC.

    All else stays as it is, pixels, date and attributes as well. is_dry: do not replace it.
    """
    if photo.suffix.lower() in files.RAW_SUFFIXES:
        raise UserError(f"{photo} is a raw file, into which nothing is written: use --xmp")
    check_exiftool()
    problem, options = f"cannot embed the caption in {photo}", [*iptc, "-o", "-"]
    if block is not None:
        options.append("-XMP<=-" if block else "-XMP:all=")
    with files.refuse_os_errors(problem):
        status = photo.stat()
        if status.st_nlink > 1:
            raise UserError(f"{photo} has several hard links: give it one, or use --xmp")
        content = _answer(photo, problem, *options, given=block or b"")
        if is_dry:
            return
        with files.atomic_path(photo) as temporary:
            temporary.write_bytes(content)
            shutil.copystat(photo, temporary)
            with suppress(AttributeError, PermissionError):  # Windows; another's photo.
                os.chown(temporary, status.st_uid, status.st_gid)
            temporary.chmod(
                0o600
            )  # The photo's mode, which it gets at the end, may forbid writing.


def _answer(photo: Path, problem: str, *options: str, given: bytes = b"") -> bytes:
    """What exiftool prints about a photo. Raises `UserError` with the problem if it fails."""
    seconds = _SECONDS + photo.stat().st_size / _BYTES_A_SECOND
    command = ["exiftool", "-q", "-q", *options, os.path.abspath(photo)]
    try:
        run = subprocess.run(command, input=given, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise UserError(f"{problem}: exiftool took more than {seconds:.0f} seconds") from None
    if run.returncode < 0 or not run.stdout:
        said = run.stderr.decode(errors="surrogateescape").strip().removeprefix("Error: ")
        reason = said.removesuffix(f" - {command[-1]}") or "exiftool died"
        raise UserError(f"{problem}: {reason}")
    return run.stdout
