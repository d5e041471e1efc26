"""Writes words into a photo, as XMP and IPTC, by exiftool."""

import os
import shutil
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from captioner import files
from captioner.errors import UserError
from captioner.library.exiftool import Exiftool
from captioner.library.inside import IPTC_CAPTION, IPTC_KEYWORDS, Inside
from captioner.library.merge import IPTC_BEFORE, Merged, own_keywords, own_texts, texts
from captioner.library.words import Words
from captioner.library.xmp import Packet

TEMPORARY = ".embedded"
"""Suffix of temporary files beside photos; by that of a WebP, exiftool does not know its format."""

_LONGEST = {IPTC_CAPTION: 2000, IPTC_KEYWORDS: 64}  # Bytes (IPTC's IIM 4.2, 2:120 and 2:25).
_HEADERS = {"ApplicationRecordVersion", "EnvelopeRecordVersion", "CodedCharacterSet"}


def embed(
    photo: Path, content: bytes | None, iptc: Sequence[str], exiftool: Exiftool, is_dry: bool
) -> None:
    """Write a packet of XMP, None for none, and changes of IPTC into a photo.

    All else stays as it is, pixels, date and attributes as well. is_dry: do all but replace it.
    """
    if photo.suffix.lower() in files.RAW_SUFFIXES:
        raise UserError(f"{photo} is a raw file, into which nothing is written: use --xmp")
    exiftool.check()
    target, problem = Path(os.path.realpath(photo)), f"cannot write into {photo}"
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


def caption_in_iptc(inside: Inside) -> str:
    """The caption in IPTC, "" without one."""
    return "\n".join(inside.iptc.get(IPTC_CAPTION, ()))


def _options(inside: Inside, caption: str, keywords: Sequence[str]) -> list[str]:
    """exiftool's options by which IPTC gets a caption and keywords in place of its own."""
    if not inside.takes_iptc:
        return []
    before = inside.iptc.get(IPTC_KEYWORDS, ())
    added = [word for word in dict.fromkeys(keywords) if word not in before]
    gone = [word for word in before if word not in keywords]
    options = [f"-IPTC:Keywords-={word}" for word in (*gone, *added)]
    options += [f"-IPTC:Keywords+={word}" for word in added]
    if caption != caption_in_iptc(inside):
        escaped = caption.replace("\\", "\\\\").replace("\n", "\\n")
        options.append(f"#[CSTR]-IPTC:Caption-Abstract={escaped}")
    has_other = inside.iptc.keys() - {IPTC_CAPTION, IPTC_KEYWORDS, *_HEADERS}
    if options and not (has_other or caption or keywords):
        return ["-IPTC:all="]
    # Old texts are not recoded.
    return options if inside.iptc or not options else ["-CodedCharacterSet=UTF8", *options]


def merged_iptc(
    inside: Inside, packet: Packet, words: Words, merged: Merged, overwrite: bool
) -> tuple[list[str], str, bool]:
    """The options by which IPTC gets what a packet got, a person's caption, and whether it is cut.

    What captioner wrote into IPTC and a person took out there is not written again.
    """
    caption, own = caption_in_iptc(inside), own_texts(packet)
    by_captioner = _is_own(caption, own, IPTC_CAPTION)
    is_taken_out = not (caption or overwrite) and bool(inside.iptc and own)
    wanted = _cut(words.caption, IPTC_CAPTION)
    if not merged.is_described or is_taken_out:
        wanted = "" if by_captioner else caption
    there, others = _parted(inside, packet)
    written = {word: _cut(word, IPTC_KEYWORDS) for word in merged.keywords}
    gone = {_cut(word, IPTC_KEYWORDS) for word in own_keywords(packet)}.difference(there)
    kept = [word for word in written.values() if not inside.iptc or word not in gone]
    options = _options(inside, wanted, [*others, *kept])
    is_cut = (wanted != words.caption and merged.is_described) or [*written] != [*written.values()]
    is_replaced = caption not in ("", wanted) and not by_captioner
    return options, caption if is_replaced else "", is_cut and bool(options)


def undone_iptc(inside: Inside, packet: Packet) -> list[str]:
    """The options by which captioner's words leave IPTC, and a person's come back."""
    caption = caption_in_iptc(inside)
    if _is_own(caption, own_texts(packet), IPTC_CAPTION):
        caption = "".join(texts(packet.properties, IPTC_BEFORE)[-1:])
    _, others = _parted(inside, packet)
    return _options(inside, caption, others)


def _parted(inside: Inside, packet: Packet) -> tuple[list[str], list[str]]:
    """The keywords in IPTC: captioner's, and others."""
    own, found = own_keywords(packet), inside.iptc.get(IPTC_KEYWORDS, ())
    there = [word for word in found if _is_own(word, own, IPTC_KEYWORDS)]
    return there, [word for word in found if word not in there]


def _cut(text: str, name: str) -> str:
    """The beginning of a text that IPTC has room for; no letter is cut."""
    return text.encode()[: _LONGEST[name]].decode(errors="ignore").rstrip()


def caption_forms(caption: str, name: str = IPTC_CAPTION) -> set[str]:
    """The forms that a text of captioner's has in XMP and IPTC, also in a Latin character set."""
    whole = _cut(caption, name)
    return {caption, whole, whole.encode("cp1252", "replace").decode("cp1252")}


def _is_own(found: str, own: Collection[str], name: str) -> bool:
    """Whether a text in IPTC is one that captioner wrote."""
    return any(found in caption_forms(text, name) for text in own)
