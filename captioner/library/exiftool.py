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

TEMPORARY = ".embedded"
"""Suffix of temporary files beside photos; by that of a WebP, exiftool does not know its format."""

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
    answer = _answer(photo, "-json", "-G0:4", "-a", "-b", *(f"-{tag}" for tag in _TAGS))
    try:
        (found,) = json.loads(answer, parse_int=str, parse_float=str)
    except ValueError:
        raise UserError(f"cannot read {photo}: {answer or 'exiftool says nothing'}") from None
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
    target, problem = Path(os.path.realpath(photo)), f"cannot embed the caption in {photo}"
    packet, written = (files.temporary_path(target.parent, TEMPORARY) for _ in range(2))
    with files.refuse_os_errors(problem):
        status = target.stat()
        if status.st_nlink > 1:
            raise UserError(f"{photo} has several hard links: give it one, or use --xmp")
        try:
            packet.write_bytes(block or b"")
            # exiftool reads %f in a name as a code, and %d as the photo's folder.
            xmp = [f"-XMP<=%d{packet.name}"] if block else ["-XMP:all="]
            options = [*iptc, *(xmp if block is not None else [])]
            answer = _answer(target, *options, "-o", f"%d{written.name}")
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
            packet.unlink(missing_ok=True)
            written.unlink(missing_ok=True)


def _answer(photo: Path, *options: str) -> str:
    """What exiftool prints about a photo, without warnings; or why it prints nothing."""
    seconds = _SECONDS + photo.stat().st_size / _BYTES_A_SECOND
    command = ["exiftool", "-q", "-q", *options, os.path.abspath(photo)]
    try:
        run = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"exiftool took more than {seconds:.0f} seconds"
    answer = run.stdout.decode(errors="surrogateescape").strip()
    return "exiftool died" if run.returncode < 0 else answer
