"""Reads the words in a photo."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from PIL import ExifTags, Image
from PIL.IptcImagePlugin import getiptcinfo

from captioner.errors import UserError, noted, reason_of
from captioner.files import RAW_SUFFIXES, read_bytes
from captioner.library.cameras import by_people
from captioner.library.exiftool import TEXTS, Exiftool
from captioner.library.merge import ELSEWHERE, IPTC_CAPTION, IPTC_KEYWORDS
from captioner.library.xmp import Properties

_DATA = re.compile("[\0-\x08]|^base64:")
_BY_CAMERAS = (TEXTS[0], TEXTS[2], TEXTS[4])  # Places that cameras write into, too.

# In the content of a file whose words Pillow does not see, by format; of PNG, behind the pixels.
_UNSEEN = {"GIF": rb"XMP DataXMP", "PNG": rb"[tzi]TXt|eXIf|Raw profile", "JPEG2000": rb"uuid|xml "}
_UNSEEN |= {"PPM": rb"\AP\d\s*#", "JPEG": rb"ns\.adobe\.com/xmp/extension/"}


@dataclass(frozen=True)
class Inside:
    """The words in a photo.

    packets: of XMP. properties: IPTC, of a format into which captioner writes it, and the
        descriptions elsewhere, but by cameras, as `photo:texts`.
    unseen: the format if it holds words that need exiftool, which is not there, else "".
    problem: why the file cannot be read, "" if it can.
    """

    packets: Sequence[bytes] = ()
    properties: Properties = field(default_factory=dict)
    unseen: str = ""
    problem: str = ""


def read_inside(photo: Path, exiftool: Exiftool, is_embedded: bool) -> Inside:
    """Read the words in a photo: by Pillow, which is faster, and what it does not see by exiftool.

    is_embedded: whether words are written there: by exiftool alone.
    """
    values, problems = dict[str, list[str]](), list[str]()
    with noted(problems.append):
        values = {} if is_embedded else _read_by_pillow(photo)
    with noted(problems.append):
        if is_embedded or (exiftool.is_there and (not values or "unseen" in values)):
            values = exiftool.read(photo)
    if not values:
        is_raw = photo.suffix.lower() in RAW_SUFFIXES  # Nothing is written into it.
        return Inside(problem="" if is_raw else "".join(problems[-1:]))
    properties = {f"iptc:{name[5:]}": values[name] for name in values if name[:5] == "IPTC:"}
    described: list[str] = []
    if values["File:FileType"][0] in ("JPEG", "MPO", "TIFF"):
        properties = {IPTC_CAPTION: [], IPTC_KEYWORDS: []} | properties
    else:
        described, properties = by_people(properties.get(IPTC_CAPTION, ())), {}
    for name in TEXTS:
        texts = [text.strip("\0 \r\n\t") for text in values.get(name, ())]
        texts = [text for text in texts if not _DATA.search(text)]
        make = "".join(values.get("EXIF:Make", ())) if name == TEXTS[0] else ""
        described += by_people(texts, is_exif=name in _BY_CAMERAS, make=make)
    properties[ELSEWHERE] = described
    return Inside(
        [text.encode(errors="surrogateescape") for text in values.get("XMP:XMP", ())],
        {name: [("", text) for text in found] for name, found in properties.items()},
        unseen="".join(values.get("unseen", ())),
    )


def _read_by_pillow(photo: Path) -> dict[str, list[str]]:
    """The same values as by exiftool, but for what Pillow does not see."""
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    content = read_bytes(photo)
    try:
        with Image.open(BytesIO(content)) as image:
            kind, info, iptc = f"{image.format}", image.info, getiptcinfo(image) or {}
            # Of a PNG without EXIF, Pillow would decode the pixels.
            exif = image.getexif() if kind != "PNG" or "exif" in info else Image.Exif()
            tags = {**exif, **exif.get_ifd(ExifTags.IFD.Exif)}
    except Exception as error:  # Pillow's plugins raise many types.
        reason = reason_of(error)
        raise UserError(f"{photo} is not a photo that can be read ({reason})") from None
    found = {f"EXIF:{ExifTags.TAGS.get(tag)}": value for tag, value in tags.items()}
    found |= {"XMP:XMP": info.get("xmp"), "PNG:Description": info.get("Description")}
    found |= {"IPTC:Caption-Abstract": iptc.get((2, 120)), "IPTC:Keywords": iptc.get((2, 25))}
    found |= {"Comment": info.get("comment", info.get("Comment")), "File:FileType": kind}
    if iptc.get((1, 90)) == b"\x1b%G":
        found["IPTC:CodedCharacterSet"] = "UTF8"
    if kind == "PNG":
        content = content[content.rfind(b"IDAT") :] + " ".join(map(str, info)).encode()
    if re.search(_UNSEEN.get(kind, rb"\Z."), content):
        found["unseen"] = kind
    many = {name: each if isinstance(each, list) else [each] for name, each in found.items()}
    return {name: [_text(name, each, exif.endian) for each in many[name] if each] for name in many}


def _text(name: str, content: object, endian: str | None) -> str:
    """A text as Pillow gives it: UTF-8, or else that of Windows, cp1252. endian: of EXIF."""
    if isinstance(content, str):
        with suppress(UnicodeError):
            return content.encode("latin-1").decode()
        return content
    raw = bytes(content) if isinstance(content, (bytes, tuple)) else b""
    encoding = "utf-16-le" if name == "EXIF:XPComment" else "utf-8"
    if name == "EXIF:UserComment":  # Behind the name of its character set; 0 is of Latin letters.
        is_big = raw[8:9] == b"\0" or (endian == ">" and raw[9:10] != b"\0")
        wide = "utf-16-be" if is_big else "utf-16-le"
        encoding, raw = wide if raw[:7] == b"UNICODE" else encoding, raw[8:]
    with suppress(UnicodeError):
        return raw.decode(encoding)
    return raw.decode("cp1252", errors="replace")
