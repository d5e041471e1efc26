"""Descriptions inside a photo: its XMP packets, and its texts in IPTC, EXIF, PNG and comments.

XMP (Adobe, *Specification Part 3*), IPTC (*Information Interchange Model 4.2*, 2:120), EXIF
(*2.32*), PNG (W3C, *3rd Edition*, 11.3.3), GIF (*89a*), JPEG 2000 (ISO/IEC 15444-1, annex I).
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import translate
from functools import cache
from itertools import chain, groupby
from mmap import ACCESS_READ, mmap
from operator import itemgetter
from pathlib import Path
from struct import error as StructError
from typing import IO

from PIL import Image
from PIL.ExifTags import IFD, Base
from PIL.ImageFile import ImageFile
from PIL.IptcImagePlugin import getiptcinfo
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngStream, iTXt

from captioner.files import read_text
from captioner.vision.images import opened

_CHARACTER_SETS = {b"UNICODE\0": "utf-16", b"JIS\0\0\0\0\0": "iso2022_jp"}  # In a UserComment.

_IPTC_CAPTION = re.compile(rb"(?s)\x1c\x02\x78([\0-\x7f].)")  # What stands before its text.
_JPEG_2000_BOX = re.compile(rb"(?s)xml |uuid.{16}")  # Its size stands before.
_GIF_XMP = re.compile(rb"(?s)!\xff\x0bXMP DataXMP(.*?)\x01\xff\xfe")
_PNM_HEADER = re.compile(rb"P\d(?:(?:\s|#.*\n)+\d+){2,3}")

IPTC_CAPTION, IPTC_KEYWORDS = (2, 120), (2, 25)
IptcTexts = dict[tuple[int, int], list[str]]
"""By record and number."""

_KINDS = ("iptc", "exif", "Description", "Comment")
_Block = tuple[str, bytes]
"""A content and its kind: "xmp", one of `_KINDS`, of which the first counts most, or another."""


def read_inside(photo: Path) -> tuple[list[bytes], list[str]]:
    """The XMP packets in a photo, and its texts elsewhere, without those that cameras write.

    The first text counts most. Damage is left out, except in packets.
    """
    packets: list[bytes] = []
    texts: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    with suppress(Exception), opened(photo) as image:
        if image.format != "PNG":  # For it, Pillow would decode the pixels.
            with suppress(Exception):
                texts["exif"] += _exif_texts(image.getexif())
        with suppress(Exception):
            texts["iptc"] += by_people(iptc_of(image).get(IPTC_CAPTION, ()))
        for kind, block in _blocks(image):
            with suppress(Exception):
                if kind == "xmp":
                    packets.append(_trimmed(block))
                elif kind in _KINDS:
                    texts[kind] += _texts(kind, block)
    return [*dict.fromkeys(filter(None, packets))], [*dict.fromkeys(chain(*texts.values()))]


def iptc_of(image: ImageFile) -> IptcTexts:
    """The texts in the IPTC of a JPEG or TIFF; empty without IPTC."""
    contents = getiptcinfo(image) or {}
    return {
        number: [*map(_decoded, content if isinstance(content, list) else [content])]
        for number, content in contents.items()
    }


def by_people(texts: Iterable[str], is_exif: bool = False, make: str = "") -> list[str]:
    """The texts without those that cameras and programs write; in doubt, a person did.

    is_exif: in EXIF, its copy in XMP, or a comment; elsewhere, a single word is a person's.
    make: of the camera, in EXIF.
    """
    anywhere, in_exif, codes, makes = _camera_patterns()

    def is_by_camera(text: str) -> bool:
        is_code = " " not in text and codes.match(text) and (not make or makes.match(make))
        is_by_one = in_exif.match(text) or is_code or (text.isupper() and "CAMERA" in text)
        return bool(anywhere.match(text) or (is_exif and is_by_one))

    return [text for text in texts if text and not is_by_camera(text)]


@cache
def _camera_patterns() -> list[re.Pattern[str]]:
    """Those of each paragraph of the list, below its heading; codes stand there as they are."""
    content = read_text(Path(__file__).with_name("camera_descriptions.txt"))
    paragraphs = (paragraph.split("\n")[1:] for paragraph in content.strip().split("\n\n"))
    expressions = ("|".join(map(translate, patterns)) for patterns in paragraphs)
    return [*map(re.compile, expressions, (re.IGNORECASE, re.IGNORECASE, 0, re.IGNORECASE))]


def _blocks(image: ImageFile) -> Iterator[_Block]:
    """The metadata of a photo, except the EXIF and the IPTC that Pillow finds."""
    yield "xmp", image.info.get("xmp", b"")
    yield "Comment", image.info.get("comment", b"")
    if isinstance(image, JpegImageFile):
        yield from _blocks_of_jpeg(image)
    elif image.format == "PNG" and image.fp:
        yield from _blocks_of_png(image.fp)
    elif image.fp:
        with mmap(image.fp.fileno(), 0, access=ACCESS_READ) as content:
            yield from _blocks_of_content(image.format, content)


def _blocks_of_content(kind: str | None, content: mmap) -> Iterator[_Block]:
    if kind == "GIF":
        yield from (("xmp", found[1]) for found in _GIF_XMP.finditer(content))
    elif kind == "JPEG2000":
        for box in _JPEG_2000_BOX.finditer(content):  # Also in other boxes.
            start = box.start() - 4
            size = int.from_bytes(content[start : start + 4], "big")
            yield _of_unknown_kind(content[box.end() : start + size if size else None])
    elif kind == "PPM" and (header := _PNM_HEADER.match(content)):
        yield from (("Comment", line) for line in re.findall(rb"#(.*)", header[0]))


def _blocks_of_jpeg(image: JpegImageFile) -> Iterator[_Block]:
    extensions = []
    for name, segment in image.applist:
        head, _, block = segment.partition(b"\0")
        if name == "COM":
            yield "Comment", segment
        elif head == b"http://ns.adobe.com/xap/1.0/":
            yield "xmp", block
        elif head == b"http://ns.adobe.com/xmp/extension/":  # The packet's identifier and size,
            extensions.append((block[:32], block[36:40], block[40:]))  # a place, and a part.
    for _, parts in groupby(sorted(extensions), key=itemgetter(0)):
        yield "xmp", b"".join(part for _, _, part in parts)


def _blocks_of_png(file: IO[bytes]) -> Iterator[_Block]:
    """Those of all chunks, also behind the pixels."""
    file.seek(8)
    chunks = PngStream(file)
    with suppress(SyntaxError, StructError):  # The end.
        while True:
            name, start, size = chunks.read()
            with suppress(Exception):
                if name == b"eXIf":
                    yield "exif", chunks.call(name, start, size)
                elif name in (b"tEXt", b"zTXt", b"iTXt"):
                    chunks.call(name, start, size)
                    yield _block_of_text(*chunks.im_text.popitem())
            file.seek(start + size + 4)


def _block_of_text(keyword: str, text: str) -> _Block:
    if keyword.startswith("Raw profile type "):  # By exiftool and ImageMagick, in hexadecimals.
        return _of_unknown_kind(bytes.fromhex(text.split("\n", 3)[3]))
    kind = "xmp" if keyword == "XML:com.adobe.xmp" else keyword.capitalize()
    return kind, text.encode("utf-8" if isinstance(text, iTXt) else "latin-1")


def _of_unknown_kind(block: bytes) -> _Block:
    if block.startswith((b"Exif\0\0", b"II*\0", b"MM\0*")):
        return "exif", block
    if block.startswith((b"8BIM", b"\x1c")):
        return "iptc", block
    is_xmp = re.search(rb"<(\w+:)?RDF", block.replace(b"\0", b""))
    return "xmp" if is_xmp else "", block


def _trimmed(packet: bytes) -> bytes:
    """An XMP packet without padding, and without the header of a segment of JPEG."""
    packet = packet.removeprefix(b"http://ns.adobe.com/xap/1.0/\0")
    zeros = re.match(rb"(?:\xff\xfe(?:\0\0)?)?<(\0*)", packet)  # Behind letters, in UTF-16 and -32.
    return packet.rstrip(b"\0 \r\n\t") + (zeros[1] if zeros else b"")


def _texts(kind: str, block: bytes) -> list[str]:
    """The texts of a block that is no packet."""
    if kind == "exif":
        exif = Image.Exif()
        exif.load(block)
        return _exif_texts(exif)
    if kind == "iptc":
        found = _IPTC_CAPTION.finditer(block)
        ends = ((each.end(), each.end() + int.from_bytes(each[1], "big")) for each in found)
        return by_people(_decoded(block[start:end]) for start, end in ends)
    return by_people([_decoded(block)], is_exif=kind == "Comment")


def _exif_texts(exif: Image.Exif) -> list[str]:
    make, description = (_decoded(exif.get(tag, "")) for tag in (Base.Make, Base.ImageDescription))
    windows_comment = _decoded(exif.get(Base.XPComment, b""), "utf-16-le")
    comment = _user_comment(exif.get_ifd(IFD.Exif).get(Base.UserComment, b""))
    others = by_people([windows_comment]) + by_people([comment], is_exif=True)
    return by_people([description], is_exif=True, make=make) + others


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
        return raw.decode(encoding).strip("\0 \r\n\t")
    except UnicodeDecodeError:
        return raw.decode("latin-1").strip("\0 \r\n\t")
