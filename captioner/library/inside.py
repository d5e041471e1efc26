"""Reads the words in a photo: by exiftool where it is there, else by Pillow."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from PIL import ExifTags, Image
from PIL.IptcImagePlugin import getiptcinfo

from captioner.errors import UserError, reason_of
from captioner.files import RAW_SUFFIXES, read_bytes
from captioner.library.cameras import by_people
from captioner.library.exiftool import Exiftool
from captioner.library.merge import ELSEWHERE, IPTC_CAPTION, IPTC_KEYWORDS
from captioner.library.xmp import Properties

_TEXTS = ("EXIF:ImageDescription", "EXIF:XPComment", "EXIF:UserComment", "PNG:Description")
_TAGS = (
    *_TEXTS,
    "PNG:Description*",
    "Comment",
    "EXIF:Make",
    "XMP",
    "IPTC:all",
    "FileType",
    "MIMEType",
)
_DATA = re.compile("[\0-\x08]|^base64:")
_BY_CAMERAS = (_TEXTS[0], _TEXTS[2], "Comment")  # Places that cameras write into, too.

# In the content of a file whose words Pillow does not see, by format.
_UNSEEN = {"GIF": rb"XMP DataXMP", "PNG": rb"Raw profile type ", "JPEG2000": rb"uuid|xml "}
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


def read_inside(photo: Path, exiftool: Exiftool) -> Inside:
    """Read the words in a photo."""
    try:
        has_exiftool = shutil.which("exiftool")
        values = _by_exiftool(photo, exiftool) if has_exiftool else _by_pillow(photo)
    except UserError as error:
        is_raw = photo.suffix.lower() in RAW_SUFFIXES  # Nothing is written into it.
        return Inside(problem="" if is_raw else str(error))
    found = {f"iptc:{name[5:]}": values[name] for name in values if name.startswith("IPTC:")}
    described: list[str] = []
    if values["File:FileType"][0] in ("JPEG", "MPO", "TIFF"):
        found = {IPTC_CAPTION: [], IPTC_KEYWORDS: [], **found}
    else:
        described, found = by_people(found.get(IPTC_CAPTION, ())), {}
    make = "".join(values.get("EXIF:Make", ())[:1])
    for name in (*_TEXTS, "Comment"):
        texts = [text.strip("\0 \r\n\t") for text in values.get(name, ())]
        texts = [text for text in texts if not _DATA.search(text)]
        of_make = make if name == _TEXTS[0] else ""
        described += by_people(texts, is_exif=name in _BY_CAMERAS, make=of_make)
    found[ELSEWHERE] = described
    return Inside(
        [text.encode(errors="surrogateescape") for text in values.get("XMP:XMP", ())],
        {name: [("", text) for text in found[name]] for name in found},
        unseen="".join(values.get("unseen", ())),
    )


def _by_exiftool(photo: Path, exiftool: Exiftool) -> Mapping[str, list[str]]:
    """The values of `_TAGS`, by group and name."""
    tags = (f"-{tag}" for tag in _TAGS)
    answer = exiftool.run(photo, "-json", "-G0:4", "-a", "-b", *tags)
    try:
        (found,) = json.loads(answer, parse_int=str, parse_float=str)
    except ValueError:
        raise UserError(f"cannot read {photo}: {answer or 'exiftool says nothing'}") from None
    values: dict[str, list[str]] = {}
    for name, value in found.items():  # Such as "EXIF:Copy1:UserComment", "PNG:Description-de".
        key = re.sub(":Copy\\d+|(?<=PNG:Description)-.*|.*:(?=Comment$)", "", name)
        values.setdefault(key, []).extend(map(str, value if isinstance(value, list) else [value]))
    if not values.get("File:MIMEType", [""])[0].startswith("image/"):
        raise UserError(f"{photo} is not a photo that can be read")
    return values


def _by_pillow(photo: Path) -> Mapping[str, list[str]]:
    """The same, of what Pillow sees."""
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    content = read_bytes(photo)
    try:
        with Image.open(BytesIO(content)) as image:
            if image.format == "PNG":
                image.load()  # Its texts may stand behind the pixels.
            exif, iptc = image.getexif(), getiptcinfo(image) or {}
            comment = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment, b"")
    except Exception as error:  # Pillow's plugins raise many types.
        reason = reason_of(error)
        raise UserError(f"{photo} is not a photo that can be read ({reason})") from None
    kind, info = f"{image.format}", image.info
    encoding = {b"UNICODE\0": f"utf-16-{'be' if exif.endian == '>' else 'le'}"}.get(comment[:8])
    found = {
        "XMP:XMP": info.get("xmp"),
        "EXIF:Make": exif.get(ExifTags.Base.Make),
        "EXIF:ImageDescription": exif.get(ExifTags.Base.ImageDescription),
        "EXIF:XPComment": _decoded(exif.get(ExifTags.Base.XPComment, b""), "utf-16-le"),
        "EXIF:UserComment": _decoded(comment[8:], encoding or "utf-8"),
        "PNG:Description": info.get("Description"),
        "Comment": info.get("comment", info.get("Comment")),
        "IPTC:Caption-Abstract": iptc.get((2, 120)),
        "IPTC:Keywords": iptc.get((2, 25)),
        "File:FileType": kind,
        "unseen": kind if re.search(_UNSEEN.get(kind, rb"\Z."), content) else None,
    }
    lists = {name: each if isinstance(each, list) else [each] for name, each in found.items()}
    return {name: [*map(_decoded, filter(None, each))] for name, each in lists.items()}


def _decoded(content: bytes | str | tuple[int, ...], encoding: str = "utf-8") -> str:
    """A text in an encoding, or else in Latin-1, as which Pillow decodes."""
    with suppress(UnicodeError):
        raw = content.encode("latin-1") if isinstance(content, str) else bytes(content)
        return raw.decode(encoding)
    return content if isinstance(content, str) else bytes(content).decode("latin-1")
