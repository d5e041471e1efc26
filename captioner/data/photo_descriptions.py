"""Descriptions of a photo, beside it and inside it, and who wrote them.

XMP (see `captioner.data.xmp`), IPTC (*Information Interchange Model 4.2*, 2:120) and EXIF (*2.32*).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from os.path import isfile
from pathlib import Path
from typing import Any

from PIL import ExifTags
from PIL.IptcImagePlugin import getiptcinfo

from captioner.data.xmp import XmpPacket
from captioner.files import read_text, refuse_os_errors
from captioner.vision.images import opened

_CHARACTER_SETS = {b"UNICODE\0": "utf-16", b"JIS\0\0\0\0\0": "iso2022_jp"}  # Of a UserComment.


def photo_descriptions(photo: Path) -> Iterator[tuple[str, str, bool]]:
    """Where the descriptions of a photo are, their texts, and whether captioner wrote them.

    The first counts most; those that cameras write are left out. What is not understood is a text.
    """
    for sidecar in (photo.with_suffix(".xmp"), photo.with_name(f"{photo.name}.xmp")):
        if isfile(sidecar):
            with refuse_os_errors(f"cannot read {sidecar}"):
                packet = XmpPacket(sidecar.read_bytes(), str(sidecar))
            yield from _described("with an XMP sidecar", packet)
    block, texts = _read_inside(photo)
    packet = XmpPacket(block, f"the XMP of {photo}")
    yield from _described("described inside", packet, texts)


def words_of_person(photo: Path) -> str:
    """The description of a photo by a person, wherever it stands; "" if there is none."""
    return next((text for _, text, is_own in photo_descriptions(photo) if not is_own), "")


def packet_words_of_person(packet: XmpPacket, *others: str) -> str:
    """The description by a person in a packet, or in other texts of its photo; "" if none."""
    described = _described("", packet, others)
    return next((text for _, text, is_own in described if not is_own), "")


def _described(
    place: str, packet: XmpPacket, others: tuple[str, ...] | list[str] = ()
) -> Iterator[tuple[str, str, bool]]:
    own_texts = packet.own_texts("description")
    for text in map(str.strip, (*packet.descriptions, *others)):
        if text and not any(fnmatchcase(text.lower(), each) for each in _camera_descriptions()):
            yield place, text, text in own_texts


def _read_inside(photo: Path) -> tuple[bytes | None, list[str]]:
    """The XMP packet in a photo, and its texts in IPTC, EXIF and PNG; damage is left out."""
    block, texts = None, []
    with suppress(Exception), opened(photo) as image:
        xmp = image.info.get("xmp")
        block = xmp.rstrip(b"\0 ") if isinstance(xmp, bytes) and xmp.strip(b"\0 ") else None
        with suppress(Exception):
            iptc: Any = (getiptcinfo(image) or {}).get((2, 120), b"")
            texts.append(_decoded(iptc if isinstance(iptc, bytes) else iptc[0]))
        with suppress(Exception):
            exif = image.getexif()
            texts.append(_decoded(exif.get(ExifTags.Base.ImageDescription, "")))
            texts.append(_decoded(exif.get(ExifTags.Base.XPComment, b""), "utf-16-le"))
            comment = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment, b"")
            texts.append(_user_comment(comment))
        texts.append(str(image.info.get("Description", "")))
    return block, texts


def _user_comment(content: bytes | str) -> str:
    """The text behind the eight bytes that name its character set."""
    if isinstance(content, str):
        return _decoded(content)
    encoding = _CHARACTER_SETS.get(content[:8], "utf-8")
    if encoding == "utf-16" and content[8:10] not in (b"\xff\xfe", b"\xfe\xff"):
        # Without a mark: the byte that is 0 in Latin letters tells the order.
        is_big = content[8::2].count(0) > content[9::2].count(0)
        encoding = "utf-16-be" if is_big else "utf-16-le"
    text = _decoded(content[8:], encoding)
    return "" if any(ord(letter) < ord("\t") for letter in text) else text  # Data of a camera.


def _decoded(content: bytes | str, encoding: str = "utf-8") -> str:
    """Text in an encoding, or else in Latin-1, as which Pillow decodes EXIF."""
    raw = content.encode("latin-1") if isinstance(content, str) else content
    try:
        return raw.decode(encoding).strip("\0 ")
    except UnicodeDecodeError:
        return raw.decode("latin-1").strip("\0 ")


@cache
def _camera_descriptions() -> list[str]:
    """Patterns of the descriptions by cameras and programs, in lower case."""
    return read_text(Path(__file__).with_name("camera_descriptions.txt")).lower().split("\n")[:-1]
