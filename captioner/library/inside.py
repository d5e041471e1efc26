"""Reads the words in a photo: by exiftool where it is there, else by Pillow."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from PIL import ExifTags, Image
from PIL.IptcImagePlugin import getiptcinfo

from captioner.errors import CONTROLS, UserError, reason_of
from captioner.files import RAW_SUFFIXES, Json, read_bytes
from captioner.library.cameras import by_people
from captioner.library.exiftool import Exiftool, has_exiftool

IPTC_CAPTION, IPTC_KEYWORDS = "Caption-Abstract", "Keywords"
_WITH_IPTC = ("JPEG", "MPO", "TIFF")
_EXIF_OF_PILLOW = {
    ExifTags.Base.Make: "Make",
    ExifTags.Base.ImageDescription: "ImageDescription",
    ExifTags.Base.XPComment: "XPComment",
}
_EXIF_TAGS = ("UserComment", *_EXIF_OF_PILLOW.values())
_TAGS = ("XMP", "IPTC:all", *(f"EXIF:{name}" for name in _EXIF_TAGS))
_TAGS += ("PNG:Description", "Comment", "FileType", "MIMEType")

# Content of which Pillow does not see the words, by format.
_UNSEEN = {"GIF": b"XMP DataXMP", "PNG": b"Raw profile type ", "JPEG2000": b"uuid"}
_CHARACTER_SETS = {b"UNICODE\0": "utf-16", b"JIS\0\0\0\0\0": "iso2022_jp"}  # In a UserComment.


@dataclass(frozen=True)
class Inside:
    """The words in a photo.

    packets: of XMP. texts: descriptions elsewhere, but by cameras; the first counts most.
    iptc: by name. takes_iptc: whether captioner writes IPTC into its format.
    unseen: the format if it holds words that need exiftool, which is not there, else "".
    problem: why the file cannot be read, "" if it can.
    """

    packets: Sequence[bytes] = ()
    texts: Sequence[str] = ()
    iptc: Mapping[str, Sequence[str]] = field(default_factory=dict)
    takes_iptc: bool = False
    unseen: str = ""
    problem: str = ""


def read_inside(photo: Path, exiftool: Exiftool) -> Inside:
    """Read the words in a photo."""
    try:
        return _by_exiftool(photo, exiftool) if has_exiftool() else _by_pillow(photo)
    except UserError as error:
        is_raw = photo.suffix.lower() in RAW_SUFFIXES  # Nothing is written into it.
        return Inside(problem="" if is_raw else str(error))


def _by_exiftool(photo: Path, exiftool: Exiftool) -> Inside:
    tags = (f"-{tag}" for tag in _TAGS)
    answer = exiftool.run(photo, "-json", "-G0:4", "-a", "-b", *tags)
    found: dict[str, Json] = {}
    with suppress(ValueError):
        (found,) = json.loads(answer, parse_int=str, parse_float=str)
    if not str(found.get("File:MIMEType", "")).startswith("image/"):
        raise UserError(f"{photo} is not a photo that can be read")
    values: dict[str, list[str]] = {}
    for name, value in found.items():  # Such as "EXIF:Copy1:UserComment".
        key = f"{name.split(':')[0]}:{name.split(':')[-1]}"
        values.setdefault(key, []).extend(map(str, value if isinstance(value, list) else [value]))
    exif = {name: values[f"EXIF:{name}"][0] for name in _EXIF_TAGS if f"EXIF:{name}" in values}
    comments = [text for name in values if name.endswith(":Comment") for text in values[name]]
    iptc = {name.partition(":")[2]: texts for name, texts in values.items() if name[:5] == "IPTC:"}
    packets = [text.encode(errors="surrogateescape") for text in values.get("XMP:XMP", [])]
    return Inside(
        [*filter(None, packets)],
        _texts(exif, iptc, values.get("PNG:Description", []), comments),
        iptc,
        takes_iptc=found["File:FileType"] in _WITH_IPTC,
    )


def _by_pillow(photo: Path) -> Inside:
    with suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
    try:
        content = read_bytes(photo)
        with Image.open(BytesIO(content)) as image:
            if image.format == "PNG":
                image.load()  # Its texts may stand behind the pixels.
            exif = image.getexif()
            iptc = getiptcinfo(image) or {}
    except UserError:
        raise
    except Exception as error:  # Pillow's plugins raise many types.
        reason = reason_of(error)
        raise UserError(f"{photo} is not a photo that can be read ({reason})") from None
    described = {name: exif[tag] for tag, name in _EXIF_OF_PILLOW.items() if tag in exif}
    described["UserComment"] = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment, b"")
    named = {IPTC_CAPTION: iptc.get((2, 120), []), IPTC_KEYWORDS: iptc.get((2, 25), [])}
    lists = {name: each if isinstance(each, list) else [each] for name, each in named.items()}
    info = image.info
    is_unseen = _UNSEEN.get(image.format or "", b"\0captioner") in content
    return Inside(
        [each if isinstance(each, bytes) else each.encode() for each in [info.get("xmp")] if each],
        _texts(
            {name: _decoded(value, name) for name, value in described.items()},
            {name: [*map(_decoded, each)] for name, each in lists.items() if each},
            [info["Description"]] if "Description" in info else [],
            [_decoded(info[name]) for name in ("comment", "Comment") if name in info],
        ),
        {name: [*map(_decoded, each)] for name, each in lists.items() if each},
        unseen=f"{image.format}" if is_unseen else "",
    )


def _texts(
    exif: Mapping[str, str],
    iptc: Mapping[str, Sequence[str]],
    descriptions: Sequence[str],
    comments: Sequence[str],
) -> Sequence[str]:
    """The descriptions outside XMP, but by cameras; the first counts most."""
    make = exif.get("Make", "")
    user_comment = exif.get("UserComment", "")
    is_data = bool(CONTROLS.search(user_comment)) or user_comment.startswith("base64:")
    found = by_people(["\n".join(iptc.get(IPTC_CAPTION, ()))])
    found += by_people([exif.get("ImageDescription", "").strip()], is_exif=True, make=make)
    found += by_people([exif.get("XPComment", "").strip("\0 ")])
    found += by_people([] if is_data else [user_comment.strip("\0 ")], is_exif=True)
    found += by_people(descriptions) + by_people(comments, is_exif=True)
    return [*dict.fromkeys(found)]


def _decoded(content: bytes | str | tuple[int, ...], name: str = "") -> str:
    """A text as Pillow gives it: UTF-8, or else Latin-1; a comment behind its character set."""
    if isinstance(content, tuple):
        content = bytes(content)
    raw = content.encode("latin-1", "replace") if isinstance(content, str) else content
    encoding = {"XPComment": "utf-16-le"}.get(name, "utf-8")
    if name == "UserComment":
        encoding, raw = _CHARACTER_SETS.get(raw[:8], "utf-8"), raw[8:]
    if encoding == "utf-16" and raw[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        # Without a mark: the byte that is 0 in Latin letters tells the order.
        encoding = "utf-16-be" if raw[::2].count(0) > raw[1::2].count(0) else "utf-16-le"
    with suppress(UnicodeDecodeError):
        return raw.decode(encoding).strip("\0 \r\n\t")
    return raw.decode("latin-1").strip("\0 \r\n\t")
