"""Descriptions of photos in XMP sidecars and inside the photos: XMP, IPTC and EXIF.

IPTC, *Information Interchange Model 4.2* (2:120, Caption-Abstract); CIPA DC-008, *Exif 2.32*.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from PIL import ExifTags
from PIL.IptcImagePlugin import getiptcinfo

from captioner.data.xmp import XmpPacket
from captioner.files import read_text, refuse_os_errors
from captioner.vision.images import opened


def photo_descriptions(photo: Path) -> Iterator[tuple[str, str, bool]]:
    """Where the descriptions of a photo are, their texts, and whether captioner wrote them.

    The first counts most; those that cameras write are left out. Raises `UserError` for XMP that
    cannot be read.
    """
    for sidecar in (photo.with_suffix(".xmp"), photo.with_name(f"{photo.name}.xmp")):
        if sidecar.is_file():
            with refuse_os_errors(f"cannot read {sidecar}"):
                packet = XmpPacket(sidecar.read_bytes(), str(sidecar))
            yield from _found("with an XMP sidecar", packet, packet.description)
    block, texts = None, []
    with suppress(Exception), opened(photo) as image:  # The reader of its pixels names damage.
        xmp = image.info.get("xmp")
        block = xmp.rstrip(b"\0 ") if isinstance(xmp, bytes) else None
        iptc = (getiptcinfo(image) or {}).get((2, 120), b"")
        texts.append(_decoded(iptc if isinstance(iptc, bytes) else iptc[0]))
        exif = image.getexif().get(ExifTags.Base.ImageDescription, "")
        texts.append(_decoded(exif.encode("latin-1")))  # As Pillow decodes it.
    packet = XmpPacket(block, f"the XMP of {photo}")
    yield from _found("described inside", packet, packet.description, *texts)


def _found(place: str, packet: XmpPacket, *texts: str) -> Iterator[tuple[str, str, bool]]:
    for text in map(str.strip, texts):
        if text and not any(fnmatchcase(text.lower(), each) for each in _camera_descriptions()):
            yield place, text, text in packet.own_descriptions


def _decoded(content: bytes) -> str:
    """Text in UTF-8, or else in Latin-1."""
    with suppress(UnicodeDecodeError):
        return content.decode()
    return content.decode("latin-1")


@cache
def _camera_descriptions() -> list[str]:
    """Patterns of the descriptions by cameras and programs, in lower case."""
    return read_text(Path(__file__).with_name("camera_descriptions.txt")).lower().split("\n")[:-1]
