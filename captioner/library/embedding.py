"""Writes words into a photo, as XMP and IPTC, by exiftool."""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from captioner import files
from captioner.errors import UserError
from captioner.library.exiftool import Exiftool
from captioner.library.merge import IPTC_CAPTION, IPTC_KEYWORDS, texts
from captioner.library.xmp import Properties

TEMPORARY = ".embedded"
"""Suffix of temporary files beside photos; by that of a WebP, exiftool does not know its format."""

_HEADERS = ("ApplicationRecordVersion", "EnvelopeRecordVersion", "CodedCharacterSet")


def embed(
    photo: Path, content: bytes | None, iptc: list[str], exiftool: Exiftool, is_dry: bool
) -> None:
    """Write a packet of XMP, None for none, and changes of IPTC into a photo.

    All else stays as it is, pixels, date and attributes as well. is_dry: do all but replace it.
    """
    if photo.suffix.lower() in files.RAW_SUFFIXES:
        raise UserError(f"{photo} is a raw file, into which nothing is written: use --xmp")
    exiftool.check()
    target, problem = Path(os.path.realpath(photo)), f"cannot embed the caption in {photo}"
    block, written = (files.temporary_path(target.parent, TEMPORARY) for _ in range(2))
    with files.refuse_os_errors(problem):
        status = target.stat()
        if status.st_nlink > 1:
            raise UserError(f"{photo} has several hard links: give it one, or use --xmp")
        try:
            block.write_bytes(content or b"")
            # exiftool reads %f in a name as a code, and %d as the photo's folder.
            xmp = "-XMP:all=" if content is None else f"-XMP<=%d{block.name}"
            answer = exiftool.run(target, *iptc, xmp, "-o", f"%d{written.name}")
            if answer or not written.is_file():
                reason = answer.removeprefix("Error: ").removesuffix(f" - {target}")
                raise UserError(f"{problem}: {reason or 'exiftool wrote no photo'}")
            if not is_dry:
                shutil.copystat(target, written)
                if sys.platform != "win32":
                    with suppress(PermissionError):  # Of another's photo.
                        os.chown(written, status.st_uid, status.st_gid)
                written.chmod(0o600)  # The mode may forbid writing; `files.replace` copies it.
                files.replace(written, target)
        finally:
            block.unlink(missing_ok=True)
            written.unlink(missing_ok=True)


def iptc_changes(old: Properties, new: Properties) -> list[str]:
    """exiftool's options for other values of IPTC."""
    before, after = texts(old, IPTC_KEYWORDS), texts(new, IPTC_KEYWORDS)
    added = [word for word in after if word not in before]
    gone = [word for word in before if word not in after]
    options = [f"-IPTC:Keywords-={word}" for word in (*gone, *added)]
    options += [f"-IPTC:Keywords+={word}" for word in added]
    caption = "\n".join(texts(new, IPTC_CAPTION))
    if caption != "\n".join(texts(old, IPTC_CAPTION)):
        escaped = caption.replace("\\", "\\\\").replace("\n", "\\n")
        options.append(f"#[CSTR]-IPTC:Caption-Abstract={escaped}")
    there = {name for name in old if name.startswith("iptc:") and old[name]}
    others = there - {IPTC_CAPTION, IPTC_KEYWORDS}
    if options and not (caption or after or others - {f"iptc:{name}" for name in _HEADERS}):
        return ["-IPTC:all="]
    # Old texts are not recoded.
    return options if there or not options else ["-CodedCharacterSet=UTF8", *options]
