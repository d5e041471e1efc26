"""Digests by which photos are known again that were renamed, moved or copied."""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from itertools import chain

from PIL.ExifTags import Base
from PIL.Image import Image
from PIL.JpegImagePlugin import JpegImageFile

from captioner.errors import UserError
from captioner.files import read_bytes
from captioner.vision.images import load_image
from captioner.vision.raw import is_raw

DIGEST = "digest"
"""In `Image.info`, of the photos of the server."""

_XMP = re.compile(rb"(?s)<\?xpacket .*?\?>\s*|<x:xmpmeta.*?</x:xmpmeta>\s*")


def photo_digest(photo: str) -> str:
    """`content_digest` of a file."""
    with suppress(UserError):
        return content_digest(read_bytes(photo), photo, load_image)
    return ""


def content_digest(content: bytes, name: str, load: Callable[[bytes], Image]) -> str:
    """SHA-256 of a photo without its metadata, which `--embed` does not change.

    Of JPEG, the coded pixels and the orientation count; of raw files all; of HEIC and AVIF these
    and the Exif; of other formats, the pixels that `load` decodes. "" of what cannot be read.
    """
    head = ""
    with suppress(Exception):  # Damaged files raise many types.
        if content.startswith(b"\xff\xd8"):
            file = BytesIO(content)
            jpeg = JpegImageFile(file)  # It reads up to the pixels.
            head = f"{jpeg.quantization} {jpeg.getexif().get(Base.Orientation, 1)}"
            content = file.read()
        elif content[4:8] == b"ftyp":
            start = content.index(b"mdat")
            head = b"".join(re.findall(rb"(?s)irot.|imir.", content[:start])).hex()  # Orientation.
            content = _XMP.sub(b"", content[start:])
        elif not is_raw(name):
            image = load(content)
            head, content = f"{image.size}", image.tobytes()
        return sha256(head.encode() + content).hexdigest()
    return ""


def equal_photos(photos: Iterable[str]) -> dict[str, str]:
    """The first photo whose file each later one is equal to. Only files of one size are read."""
    by_size: dict[int, list[str]] = {}
    for photo in filter(os.path.isfile, photos):
        by_size.setdefault(os.path.getsize(photo), []).append(photo)
    equal, firsts = dict[str, str](), dict[bytes, str]()
    for photo in chain.from_iterable(each for each in by_size.values() if len(each) > 1):
        with suppress(UserError):  # One that cannot be read is named where it is captioned.
            first = firsts.setdefault(sha256(read_bytes(photo)).digest(), photo)
            if first != photo:
                equal[photo] = first
    return equal
